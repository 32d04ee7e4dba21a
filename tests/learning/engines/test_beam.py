"""Beam search against every answer there is, and within what is allowed."""

from itertools import product

import pytest
import torch

from posttrain.learning.models.load import Policy
from posttrain.learning.rollouts.engines.base import FinishReason, Prompt, SamplingParams
from posttrain.learning.rollouts.engines.beam import BeamEngine
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine


@pytest.fixture(scope="module")
def policy(models, tokenizer):
    return Policy(models["llama"], tokenizer)


@pytest.fixture(scope="module")
def prompts(tokenizer):
    return [Prompt(text, tuple(tokenizer.encode(text))) for text in ("2 + 3", "17", "4 + 4 =")]


def total(policy, prompt, tokens):
    ids = torch.tensor([[*prompt.token_ids, *tokens]])
    with torch.no_grad():
        logprobs = policy.model(input_ids=ids).logits[0].log_softmax(-1)
    begin = len(prompt.token_ids) - 1
    return sum(float(logprobs[begin + t, token]) for t, token in enumerate(tokens))


def test_a_width_of_one_takes_the_likeliest_token_each_time(policy, tokenizer, prompts):
    params = SamplingParams(max_tokens=6, temperature=0.0)
    greedy = TorchRolloutEngine(policy.model, tokenizer).sample(prompts, params)
    found = BeamEngine(policy, width=1).sample(prompts, params)
    for one, other in zip(greedy, found, strict=True):
        assert (one.token_ids, one.text) == (other.token_ids, other.text)
        assert one.finish_reason == other.finish_reason
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_as_wide_as_what_is_allowed_it_finds_the_likeliest_of_all(policy, prompts):
    # Eight answers of three tokens, each ended by the end token 2.
    answers = [(*each, 2) for each in product((5, 6), (7, 8), (9, 10))]
    allowed = {}
    for answer in answers:
        for length in range(len(answer)):
            allowed.setdefault(answer[:length], set()).add(answer[length])
    allowed = {begun: sorted(tokens) for begun, tokens in allowed.items()}
    engine = BeamEngine(policy, width=8, allowed=allowed, batch_size=3)
    found = engine.sample(prompts[:1], SamplingParams(max_tokens=9, num_samples=8))
    ordered = sorted(answers, key=lambda each: -total(policy, prompts[0], each))
    assert [each.token_ids for each in found] == ordered
    assert {each.finish_reason for each in found} == {FinishReason.STOP}
    for each in found:
        assert sum(each.logprobs) == pytest.approx(
            total(policy, prompts[0], each.token_ids), abs=1e-4
        )


def test_a_wider_beam_finds_no_less_likely_answer_of_one_length(policy, prompts):
    # Of one length: the end token is not among what is allowed.
    allowed = {
        each: list(range(3, 12)) for n in range(3) for each in product(range(3, 12), repeat=n)
    }
    params = SamplingParams(max_tokens=3)
    best = [
        sum(BeamEngine(policy, width=w, allowed=allowed).sample(prompts[1:2], params)[0].logprobs)
        for w in (1, 81)
    ]
    assert best[1] >= best[0]
    assert best[1] == pytest.approx(
        max(total(policy, prompts[1], each) for each in product(range(3, 12), repeat=3)), abs=1e-4
    )


def test_it_has_no_more_samples_than_it_keeps(policy, prompts):
    with pytest.raises(ValueError, match="a beam of 2 has no 3 samples"):
        BeamEngine(policy, width=2).sample(prompts, SamplingParams(max_tokens=3, num_samples=3))
