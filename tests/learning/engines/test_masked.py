"""A policy that may not draw every token: what it draws, and what that is told to be worth."""

import pytest
import torch

from posttrain.learning.models.load import Policy
from posttrain.learning.rl.action_masks.nucleus import Nucleus, likeliest_set
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.engines.masked import MaskedRolloutEngine
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine

PARAMS = SamplingParams(max_tokens=6, num_samples=40, seed=3, temperature=1.5)


@pytest.fixture(scope="module")
def prompts(tokenizer):
    return [Prompt(text, tuple(tokenizer.encode(text))) for text in ("2 + 3", "17", "4 + 4 =")]


def masked(models, tokenizer, by="llama-gqa-tied", **settings):
    mask = Nucleus(**settings).start(Policy(models[by], tokenizer))
    return MaskedRolloutEngine(Policy(models["llama"], tokenizer), mask.at)


def test_no_token_outside_is_drawn_and_the_others_are_worth_what_is_left(
    models, tokenizer, prompts
):
    found = masked(models, tokenizer, top_p=0.6).sample(prompts, PARAMS)
    drawn, of = 0, {prompt.id: prompt.token_ids for prompt in prompts}
    for sample in found:
        begin = of[sample.prompt_id]
        ids = torch.tensor([[*begin, *sample.token_ids]])
        with torch.no_grad():
            own, other = (
                models[name](input_ids=ids).logits[0, len(begin) - 1 : -1] / PARAMS.temperature
                for name in ("llama", "llama-gqa-tied")
            )
        allowed = likeliest_set(other, top_p=0.6)
        allowed[:, :3] = True
        wanted = own.masked_fill(~allowed, -torch.inf).log_softmax(-1)
        for place, (token, logprob) in enumerate(
            zip(sample.token_ids, sample.logprobs, strict=True)
        ):
            assert allowed[place, token]
            assert logprob == pytest.approx(float(wanted[place, token]), abs=1e-4)
            drawn += 1
        assert not allowed.all()
    assert drawn > 200


def test_without_a_mask_much_of_that_is_outside(models, tokenizer, prompts):
    """Else the test above would hold of any engine."""
    outside = 0
    for sample in TorchRolloutEngine(models["llama"], tokenizer).sample(prompts[:1], PARAMS):
        ids = torch.tensor([[*prompts[0].token_ids, *sample.token_ids]])
        with torch.no_grad():
            logits = models["llama-gqa-tied"](input_ids=ids).logits[0]
        allowed = likeliest_set(logits[len(prompts[0].token_ids) - 1 : -1] / 1.5, top_p=0.6)
        outside += sum(not allowed[t, token] for t, token in enumerate(sample.token_ids))
    assert outside > 20


def test_where_all_is_allowed_it_is_the_policy(models, tokenizer, prompts):
    alone = TorchRolloutEngine(models["llama"], tokenizer).sample(prompts, PARAMS)
    found = masked(models, tokenizer, top_p=1.0, least=10_000).sample(prompts, PARAMS)
    assert [each.token_ids for each in found] == [each.token_ids for each in alone]


def test_greedy_takes_the_likeliest_of_those_that_may_be_drawn(models, tokenizer, prompts):
    greedy = SamplingParams(max_tokens=1, temperature=0.0)
    engine = masked(models, tokenizer, top_p=0.01)
    for prompt, sample in zip(prompts, engine.sample(prompts, greedy), strict=True):
        ids = torch.tensor([prompt.token_ids])
        with torch.no_grad():
            own, other = (
                models[name](input_ids=ids).logits[0, -1] for name in ("llama", "llama-gqa-tied")
            )
        left = [0, 1, 2, int(other.argmax())]
        assert sample.token_ids == (max(left, key=lambda token: float(own[token])),)
