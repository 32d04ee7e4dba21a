"""An engine with weights of its own is handed a checkpoint's, and refused where it has others."""

import pytest
import torch
from safetensors.torch import load_file

from posttrain.learning.models.adapters import plain_weights
from posttrain.learning.models.load import Policy
from posttrain.learning.rollouts.engines.copied_weights import (
    as_stored,
    refuse_other_distribution,
)
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine
from posttrain.stage.errors import UserError
from tests.architectures import model_of


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "mixtral", "qwen3_moe", "gpt_oss", "gemma3"])
def test_weights_are_those_that_a_checkpoint_has(name, tmp_path):
    model = model_of(name)
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    given = dict(as_stored(model, plain_weights(model, ())))
    assert given.keys() == stored.keys()
    assert all(torch.equal(given[key], stored[key]) for key in stored)


def test_the_experts_of_a_layer_are_one_by_one():
    """Two layers of four; the module has two tensors a layer, a checkpoint three an expert."""
    model = model_of("mixtral")
    of_experts = [name for name, _ in plain_weights(model, ()) if ".experts." in name]
    assert len(of_experts) == 2 * 2
    stored = [name for name, _ in as_stored(model, plain_weights(model, ())) if ".experts." in name]
    assert len(stored) == 2 * 4 * 3
    assert "model.layers.1.block_sparse_moe.experts.3.w2.weight" in stored


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_an_engine_that_has_the_policys_weights_is_taken_and_another_refused(
    name, wide_model, tokenizer
):
    policy = Policy(wide_model(name), tokenizer)
    policy.model.train()
    refuse_other_distribution(TorchRolloutEngine(policy.model, tokenizer), policy, name="own")
    assert policy.model.training
    other = TorchRolloutEngine(wide_model(name, seed=1), tokenizer)
    with pytest.raises(UserError, match=rf"engine vllm computes .* \({name}\): its log-prob"):
        refuse_other_distribution(other, policy, name="vllm")


def test_what_bfloat16_rounds_is_taken(wide_model, tokenizer):
    policy = Policy(wide_model("llama"), tokenizer)
    rounded = wide_model("llama")
    with torch.no_grad():
        for parameter in rounded.parameters():
            parameter.copy_(parameter.bfloat16())
    refuse_other_distribution(TorchRolloutEngine(rounded, tokenizer), policy, name="vllm")


def test_a_policy_that_is_broken_itself_is_not_laid_at_the_engines_door(wide_model, tokenizer):
    """What says so is whoever draws from it."""
    broken = wide_model("llama")
    with torch.no_grad():
        broken.get_input_embeddings().weight.fill_(torch.nan)
    engine = TorchRolloutEngine(wide_model("llama"), tokenizer)
    refuse_other_distribution(engine, Policy(broken, tokenizer), name="vllm")
