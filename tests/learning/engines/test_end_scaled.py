"""An end that is likelier, or less likely, than a policy has it."""

import math

import pytest
import torch

from posttrain.learning.models.load import Policy
from posttrain.learning.rollouts.engines.base import FinishReason, Prompt, SamplingParams
from posttrain.learning.rollouts.engines.end_scaled import EndScaledEngine, scaled_ends
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine

PARAMS = SamplingParams(max_tokens=12, num_samples=40, seed=3)


@pytest.fixture(scope="module")
def prompts(tokenizer):
    return [Prompt(text, tuple(tokenizer.encode(text))) for text in ("2 + 3", "17")]


def drawn(models, tokenizer, prompts, temperature):
    engine = EndScaledEngine(Policy(models["llama"], tokenizer), temperature=temperature)
    return engine.sample(prompts, PARAMS)


def test_the_log_probability_of_an_end_is_multiplied():
    """Ends of 1/4 and 1/16 become 1/2 and 1/4 at a half; the sum is 1/2 + 1/4 + 11/16."""
    logprobs = torch.tensor([[1 / 4, 1 / 16, 11 / 16]]).log()
    found = scaled_ends(logprobs, [0, 1], 0.5).softmax(-1)
    total = 1 / 2 + 1 / 4 + 11 / 16
    wanted = [1 / 2 / total, 1 / 4 / total, 11 / 16 / total]
    assert found[0].tolist() == pytest.approx(wanted)
    assert float(logprobs[0, 0].exp()) == pytest.approx(1 / 4)
    assert math.isinf(float(scaled_ends(torch.tensor([[-torch.inf, 0.0]]), [0], 0.5)[0, 0]))


def test_one_changes_nothing(models, tokenizer, prompts):
    alone = TorchRolloutEngine(models["llama"], tokenizer).sample(prompts, PARAMS)
    found = drawn(models, tokenizer, prompts, 1.0)
    assert [each.token_ids for each in found] == [each.token_ids for each in alone]


def test_answers_end_sooner_below_one_and_later_above(models, tokenizer, prompts):
    ended = []
    for temperature in (0.3, 1.0, 4.0):
        samples = drawn(models, tokenizer, prompts, temperature)
        ended.append(sum(each.finish_reason is FinishReason.STOP for each in samples))
    assert ended[0] > ended[1] > ended[2]
