"""The size that is told before a run is that of the file that it writes."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from posttrain.learning.models.build_optim import build_optimizer
from posttrain.learning.models.checkpoint_size import checkpoint_bytes
from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.models.stored_tensors import TensorsApart, whole_piece


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("tied", [True, False])
def test_it_is_that_of_a_model_and_its_optimizer(kind, tied):
    config = LlamaConfig(
        vocab_size=30, hidden_size=8, intermediate_size=12, num_hidden_layers=1,
        num_attention_heads=2, tie_word_embeddings=tied,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    # 30 x 8 embedded, 4 x 8 x 8 + 3 x 8 x 12 in the layer, 3 norms of 8, and the head.
    count = 240 + 544 + 24 + (0 if tied else 240)
    optimizer = build_optimizer(model, OptimizationConfig(optimizer=kind))
    model(input_ids=torch.ones(1, 3, dtype=torch.long)).logits.sum().backward()
    optimizer.step(learning_rate=0.1, max_grad_norm=1.0)
    apart = TensorsApart(whole_piece)
    apart.take({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "all")
    numbers = sum(p.num_bytes for p in apart.pieces.values() if p.tensor.ndim)
    assert numbers == checkpoint_bytes(count, num_by_muon=544 if kind == "muon" else 0)


def test_what_is_copied_and_a_critic_come_on_top():
    # 100 weights of 2 bytes, two states of 1, 300 copied numbers of 2; a critic of 12 each.
    found = checkpoint_bytes(100, num_copied=300, own_critic=True, weight_bytes=2, state_bytes=1)
    assert found == 200 + 200 + 600 + 1200
