"""Answers that are unmasked: whole, by seed alone, in blocks, and what was learned by heart."""

import pytest
import torch

from posttrain.data.rows import TokenTable, encode_rows
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import Policy
from posttrain.learning.models.mask_policy import remember_masks
from posttrain.learning.models.mask_predictor import as_mask_predictor
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rollouts.engines.base import FinishReason, Prompt, SamplingParams
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.rollouts.engines.kinds.masked_diffusion import MaskedDiffusionEngine
from posttrain.learning.training.denoising import filled_rows, masked_loss

TABLE = {"red": "one two", "green": "two", "blue": "three one two", "gray": "one"}
CANVAS = 10


def made(seed=0):
    tokenizer = train_tokenizer([*TABLE, *TABLE.values()], vocab_size=270)
    tokenizer.add_special_tokens({"mask_token": "<mask>"})
    model = build_llama(tokenizer, hidden=32, layers=2, heads=2, seed=seed, max_length=64)
    remember_masks(model, mask=tokenizer.mask_token_id, canvas=CANVAS)
    as_mask_predictor(model)
    return Policy(model, tokenizer)


@pytest.fixture(scope="module")
def fresh():
    return made()


@pytest.fixture(scope="module")
def taught():
    """A policy that knows the table by heart."""
    policy = made()
    rows = encode_rows(policy.tokenizer, list(TABLE), list(TABLE.values()))
    rows = filled_rows(rows, canvas=CANVAS, end=policy.tokenizer.eos_token_id)
    batch = TokenTable(rows * 8, pad=0).batch(range(32))
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=5e-3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(200):
            loss, _ = masked_loss(policy.model, batch, batch.num_units)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return policy


def prompts(policy):
    # An empty answer ends where a completion begins.
    rows = encode_rows(policy.tokenizer, list(TABLE), list(TABLE.values()))
    return [Prompt(name, row.ids[: row.start]) for name, row in zip(TABLE, rows, strict=True)]


def drawn(policy, asked, params, **settings):
    with open_engine(MaskedDiffusionEngine(**settings), policy) as engine:
        return engine.sample(asked, params)


@pytest.mark.parametrize("order", ["low_confidence", "random"])
@pytest.mark.parametrize("settings", [{}, {"at_once": 3}, {"block": 4, "at_once": 3}])
def test_no_mask_is_left(fresh, order, settings):
    params = SamplingParams(max_tokens=CANVAS, num_samples=4, seed=1)
    for sample in drawn(fresh, prompts(fresh), params, order=order, **settings):
        assert fresh.tokenizer.mask_token_id not in sample.token_ids
        assert fresh.tokenizer.pad_token_id not in sample.token_ids
        assert len(sample.logprobs) == len(sample.token_ids) <= CANVAS
        ended = sample.token_ids[-1] == fresh.tokenizer.eos_token_id
        assert ended == (sample.finish_reason is FinishReason.STOP)


def test_samples_follow_from_the_seed_and_the_prompt_alone(fresh):
    params = SamplingParams(max_tokens=CANVAS, num_samples=3, seed=7)
    asked = prompts(fresh)
    whole = drawn(fresh, asked, params)
    assert drawn(fresh, asked, params) == whole
    alone = drawn(fresh, asked[2:3], params)
    assert [each.token_ids for each in alone] == [each.token_ids for each in whole[6:9]]
    other = drawn(fresh, asked, SamplingParams(max_tokens=CANVAS, num_samples=3, seed=8))
    assert [each.token_ids for each in other] != [each.token_ids for each in whole]


def test_fewer_tokens_than_the_canvas_cut_an_answer_off(fresh):
    samples = drawn(fresh, prompts(fresh), SamplingParams(max_tokens=2, seed=1))
    assert all(len(each.token_ids) <= 2 for each in samples)


@pytest.mark.parametrize("settings", [{}, {"at_once": 2}, {"block": 5}, {"order": "random"}])
def test_what_was_learned_by_heart_is_said(taught, settings):
    params = SamplingParams(max_tokens=CANVAS, temperature=0.0)
    samples = drawn(taught, prompts(taught), params, **settings)
    assert [each.text for each in samples] == list(TABLE.values())
    assert all(each.finish_reason is FinishReason.STOP for each in samples)


def test_warm_answers_are_those_that_were_taught(taught):
    params = SamplingParams(max_tokens=CANVAS, num_samples=20, seed=2)
    samples = drawn(taught, prompts(taught), params)
    right = sum(each.text == TABLE[each.prompt_id] for each in samples)
    assert right / len(samples) > 0.9
