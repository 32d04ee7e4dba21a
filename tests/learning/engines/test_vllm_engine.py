"""What is vLLM's own: weights written in place, our draws in its batch, the process as it was."""

import copy
import random

import numpy as np
import pytest
import torch

from posttrain.learning.models.load import Policy
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.rollouts.engines.kinds.vllm import VllmEngine
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine
from posttrain.stage.errors import UserError

pytestmark = pytest.mark.engines

SMALL = {"max_num_seqs": 16, "kv_cache_gib": 0.1}


@pytest.fixture(scope="module")
def policy(wide_model, tokenizer):
    return Policy(wide_model("llama-gqa-tied"), tokenizer)


@pytest.fixture(scope="module")
def rollout_engine(policy):
    with open_engine(VllmEngine(**SMALL), policy) as rollout_engine:
        yield rollout_engine


def logprobs(samples):
    return torch.tensor([value for sample in samples for value in sample.logprobs])


@pytest.mark.parametrize("params", [{}, {"temperature": 0.6, "top_k": 20}, {"top_p": 0.7}])
def test_it_draws_what_the_torch_engine_draws(rollout_engine, policy, prompts, params):
    """More rows than are decoded together, so that vLLM refills and moves its batch."""
    params = SamplingParams(max_tokens=24, num_samples=8, seed=11, **params)
    ours, theirs = (
        engine.sample(prompts, params)
        for engine in (TorchRolloutEngine(policy.model, policy.tokenizer), rollout_engine)
    )
    assert [sample.token_ids for sample in theirs] == [sample.token_ids for sample in ours]
    assert [sample.text for sample in theirs] == [sample.text for sample in ours]
    assert [sample.finish_reason for sample in theirs] == [sample.finish_reason for sample in ours]
    torch.testing.assert_close(logprobs(theirs), logprobs(ours), atol=1e-4, rtol=0)


def test_an_update_puts_the_new_policy_into_the_running_engine(
    rollout_engine, policy, prompts, trainer_logprobs
):
    """Step by step as an optimizer would; the engine stays the same object in the same place."""
    engine = rollout_engine._engine
    before = copy.deepcopy(policy.model)
    greedy = SamplingParams(max_tokens=8, temperature=0.0)
    old = rollout_engine.sample(prompts, greedy)
    for version in (1, 2):
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape))
        rollout_engine.update(version)
        new = rollout_engine.sample(prompts, greedy)
        assert {sample.policy_version for sample in new} == {version}
        for prompt, sample in zip(prompts, new, strict=True):
            drawn = torch.tensor(sample.logprobs)
            now = trainer_logprobs(policy.model, prompt, sample)
            then = trainer_logprobs(before, prompt, sample)
            torch.testing.assert_close(drawn, now, atol=1e-3, rtol=0)
            assert (drawn - then).abs().max() > 0.1
    assert [sample.token_ids for sample in new] != [sample.token_ids for sample in old]
    assert rollout_engine._engine is engine


def test_a_change_is_not_seen_before_it_is_told(rollout_engine, policy, prompts):
    params = SamplingParams(max_tokens=8, temperature=0.0)
    rollout_engine.update(3)
    before = rollout_engine.sample(prompts, params)
    with torch.no_grad():
        policy.model.get_input_embeddings().weight.mul_(1.1)
    assert rollout_engine.sample(prompts, params) == before
    rollout_engine.update(3)
    assert rollout_engine.sample(prompts, params) != before


# From here on engines of their own: one at a time, as closing one closes what all share.


@pytest.mark.parametrize("name", ["mistral-window", "gemma-tied"])
def test_other_architectures_are_updated_whole(name, wide_model, tokenizer, prompts):
    """Gemma's output head is its embedding, and no module of its own as in Llama."""
    policy = Policy(wide_model(name), tokenizer)
    params = SamplingParams(max_tokens=24, seed=1)
    with open_engine(VllmEngine(**SMALL), policy) as rollout_engine:
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape))
        rollout_engine.update(1)
        theirs = rollout_engine.sample(prompts, params)
    ours = TorchRolloutEngine(policy.model, policy.tokenizer).sample(prompts, params)
    assert [sample.token_ids for sample in theirs] == [sample.token_ids for sample in ours]
    torch.testing.assert_close(logprobs(theirs), logprobs(ours), atol=1e-4, rtol=0)


def test_a_long_prompt_that_is_read_in_pieces_draws_the_same(wide_model, tokenizer):
    """512 prompts of up to 60 tokens are several times what vLLM reads in one forward pass."""
    policy = Policy(wide_model("llama"), tokenizer)
    prompts = [Prompt(f"long{i}", (5 + i % 200,) * 60) for i in range(256)]
    params = SamplingParams(max_tokens=3, num_samples=2, seed=2)
    with open_engine(VllmEngine(max_num_seqs=512, kv_cache_gib=0.2), policy) as rollout_engine:
        theirs = rollout_engine.sample(prompts, params)
    ours = TorchRolloutEngine(policy.model, policy.tokenizer).sample(prompts, params)
    assert [sample.token_ids for sample in theirs] == [sample.token_ids for sample in ours]


def test_the_process_is_left_as_it_was(wide_model, tokenizer, prompts):
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    expected = (torch.rand(1).item(), np.random.rand(), random.random())
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    set_num_threads, threads = torch.set_num_threads, torch.get_num_threads()
    with open_engine(VllmEngine(**SMALL), Policy(wide_model("llama"), tokenizer)) as rollout_engine:
        rollout_engine.sample(prompts, SamplingParams(max_tokens=4))
    assert (torch.rand(1).item(), np.random.rand(), random.random()) == expected
    assert torch.set_num_threads is set_num_threads
    assert torch.get_num_threads() == threads
    assert not torch.distributed.is_initialized()


def test_adapters_are_merged_on_the_way(wide_model, tokenizer, prompts, trainer_logprobs):
    peft = pytest.importorskip("peft")
    from posttrain.learning.models.adapters import attach_adapter

    base, model = wide_model("llama", seed=4), wide_model("llama", seed=4)
    attach_adapter(model, rank=8, alpha=32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.2)
    assert isinstance(model.model.layers[0].mlp.up_proj, peft.tuners.lora.LoraLayer)
    greedy = SamplingParams(max_tokens=8, temperature=0.0)
    with open_engine(VllmEngine(**SMALL), Policy(model, tokenizer)) as rollout_engine:
        merged = rollout_engine.sample(prompts, greedy)
    for prompt, sample in zip(prompts, merged, strict=True):
        expected = trainer_logprobs(model, prompt, sample)
        torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=1e-3, rtol=0)
        assert (trainer_logprobs(base, prompt, sample) - expected).abs().max() > 0.1


def test_what_cannot_work_is_said_before_it_starts(models, wide_model, tokenizer):
    with (
        pytest.raises(UserError, match="no attention for heads of width 8, only for 32, 64"),
        open_engine(VllmEngine(**SMALL), Policy(models["llama"], tokenizer)),
    ):
        pass
    wide = Policy(wide_model("llama"), tokenizer)
    with (
        pytest.raises(UserError, match="engine.sleep frees the memory of a GPU"),
        open_engine(VllmEngine(sleep=True), wide),
    ):
        pass
    with (
        pytest.raises(UserError, match="a cache of 100000 GiB .* free on cpu; lower kv_cache_gib"),
        open_engine(VllmEngine(kv_cache_gib=1e5), wide),
    ):
        pass


def test_options_reach_vllm_under_its_own_names(wide_model, tokenizer, prompts):
    policy = Policy(wide_model("llama"), tokenizer)
    longest = max(len(prompt.token_ids) for prompt in prompts) + 4
    options = {"max_model_len": longest, "block_size": 32}
    with open_engine(VllmEngine(**SMALL, options=options), policy) as rollout_engine:
        assert rollout_engine.context_length == longest
        assert rollout_engine._engine.llm_engine.vllm_config.cache_config.block_size == 32
        samples = rollout_engine.sample(prompts, SamplingParams(max_tokens=24, seed=1))
    assert max(len(sample.token_ids) for sample in samples) <= longest - min(
        len(prompt.token_ids) for prompt in prompts
    )


def test_an_option_that_vllm_lacks_is_refused_before_it_starts(wide_model, tokenizer):
    policy = Policy(wide_model("llama"), tokenizer)
    with (
        pytest.raises(UserError, match="no option 'max_model_length'; did you mean 'max_model_l"),
        open_engine(VllmEngine(options={"max_model_length": 9}), policy),
    ):
        pass
