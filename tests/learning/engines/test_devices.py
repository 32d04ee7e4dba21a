"""What can be known about a GPU without one: nothing is made on another device than the policy's.

Where the default device is `meta`, a tensor that is made without saying where has no numbers, and
meets none that has.
"""

import copy

import pytest
import torch

from posttrain.learning.rollouts.engines.base import SamplingParams
from posttrain.learning.rollouts.engines.slots import SlotDecoder
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine


@pytest.mark.parametrize("name", ["llama-gqa-tied", "qwen2", "mistral-window", "gpt-neox"])
@pytest.mark.parametrize("num_samples", [1, 3])
@pytest.mark.parametrize("cut", [{"temperature": 0.0}, {"top_k": 5, "top_p": 0.9, "stop": ("a",)}])
def test_every_tensor_is_made_where_the_policy_is(
    name, num_samples, cut, models, tokenizer, prompts
):
    engine = TorchRolloutEngine(models[name], tokenizer, batch_size=6)
    params = SamplingParams(max_tokens=12, num_samples=num_samples, **cut)
    expected = engine.sample(prompts, params)
    with torch.device("meta"):
        assert engine.sample(prompts, params) == expected


def test_the_cache_has_the_number_format_of_the_policy(
    models, tokenizer, prompts, trainer_logprobs, monkeypatch
):
    """bfloat16 has 8 bits: logits of a few units are right to some hundredths."""
    half = copy.deepcopy(models["mistral-window"]).bfloat16()
    seen, make_room = [], SlotDecoder.admit

    def admit(self, *given, **options):
        read = make_room(self, *given, **options)
        seen.extend(layer.keys.dtype for layer in self.layers)
        return read

    monkeypatch.setattr(SlotDecoder, "admit", admit)
    params = SamplingParams(max_tokens=12, num_samples=2)
    samples = TorchRolloutEngine(half, tokenizer, batch_size=4).sample(prompts, params)
    assert set(seen) == {torch.bfloat16}
    by_id = {prompt.id: prompt for prompt in prompts}
    for sample in samples:
        expected = trainer_logprobs(half, by_id[sample.prompt_id], sample).float()
        torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=0.15, rtol=0)
