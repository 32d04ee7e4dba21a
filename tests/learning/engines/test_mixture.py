"""The geometric mixture of two policies: its ends, its probabilities, and its independence."""

import pytest
import torch

from posttrain.learning.models.load import Policy
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.engines.mixture import MixtureRolloutEngine
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine

PARAMS = SamplingParams(max_tokens=6, num_samples=5, seed=3)


@pytest.fixture(scope="module")
def two(models):
    return models["llama"], models["llama-gqa-tied"]


@pytest.fixture(scope="module")
def prompts(tokenizer):
    return [Prompt(text, tuple(tokenizer.encode(text))) for text in ("2 + 3", "17", "4 + 4 =")]


def mixed(two, tokenizer, share, **settings):
    return MixtureRolloutEngine(Policy(two[0], tokenizer), two[1], share=share, **settings)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_at_either_end_it_is_one_of_the_two(two, tokenizer, prompts, share):
    alone = TorchRolloutEngine(two[int(share)], tokenizer).sample(prompts, PARAMS)
    found = mixed(two, tokenizer, share).sample(prompts, PARAMS)
    for one, other in zip(alone, found, strict=True):
        assert (one.prompt_id, one.index, one.text) == (other.prompt_id, other.index, other.text)
        assert one.token_ids == other.token_ids
        assert one.finish_reason == other.finish_reason
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_log_probabilities_are_those_of_the_normalized_product(two, tokenizer, prompts):
    (found, *_) = mixed(two, tokenizer, 0.3).sample(prompts[:1], PARAMS)
    ids = torch.tensor([[*prompts[0].token_ids, *found.token_ids]])
    with torch.no_grad():
        one, other = (model(input_ids=ids).logits[0].softmax(-1) for model in two)
    product = one**0.7 * other**0.3
    product = product / product.sum(-1, keepdim=True)
    begin = len(prompts[0].token_ids) - 1
    wanted = [float(product[begin + t, token].log()) for t, token in enumerate(found.token_ids)]
    assert list(found.logprobs) == pytest.approx(wanted, abs=1e-4)


def test_what_is_drawn_hangs_on_no_other_prompt(two, tokenizer, prompts):
    together = mixed(two, tokenizer, 0.5).sample(prompts, PARAMS)
    apart = mixed(two, tokenizer, 0.5, batch_size=2).sample(prompts[1:2], PARAMS)
    assert [each.token_ids for each in apart] == [each.token_ids for each in together[5:10]]


def test_a_share_is_one(two, tokenizer):
    with pytest.raises(ValueError, match=r"share must lie in \[0, 1\], got 1.5"):
        mixed(two, tokenizer, 1.5)
