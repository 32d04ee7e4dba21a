"""What an engine is handed has a checkpoint's names and shapes, not those of the module."""

import pytest
import torch
from safetensors.torch import load_file

from posttrain.learning.models.adapters import plain_weights
from posttrain.learning.rollouts.engines.stored_names import as_stored
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
