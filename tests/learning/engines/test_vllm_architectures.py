"""Architectures of docs/scale.md's table through vLLM's CPU build: drawn as trained, or refused."""

import pytest
import torch

from posttrain.learning.models.load import Policy
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.rollouts.engines.kinds.vllm import VllmEngine
from posttrain.stage.errors import UserError
from tests.architectures import DRAWN_BY_VLLM, YES, wide_model_of

pytestmark = pytest.mark.engines

SMALL = VllmEngine(max_num_seqs=16, kv_cache_gib=0.1)
# One of each kind of answer, those that are refused before others; the rest was tried once.
TRIED = ["qwen3_moe", "gpt_oss", "mixtral", "gemma2", "qwen3"]


@pytest.mark.parametrize("name", TRIED)
def test_what_vllm_takes_it_draws_as_the_trainer_computes(
    name, tokenizer, prompts, trainer_logprobs
):
    policy = Policy(wide_model_of(name), tokenizer)
    said, most = DRAWN_BY_VLLM[name]
    if said != YES:
        with pytest.raises(UserError, match=most), open_engine(SMALL, policy):
            pass
        return
    with open_engine(SMALL, policy) as rollout_engine:
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter.add_(0.02 * torch.randn(parameter.shape))
        rollout_engine.update(1)
        drawn = rollout_engine.sample(prompts, SamplingParams(max_tokens=12, seed=1))
    by_id: dict[str, Prompt] = {prompt.id: prompt for prompt in prompts}
    for sample in drawn:
        expected = trainer_logprobs(policy.model, by_id[sample.prompt_id], sample)
        torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=most, rtol=0)
