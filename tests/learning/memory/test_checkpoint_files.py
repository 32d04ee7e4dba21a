"""The size that is told before a run is that of the file that it writes."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from posttrain.learning.memory.asked import StageQuestion
from posttrain.learning.memory.checkpoints import checkpoint_size
from posttrain.learning.memory.shapes import shapes_of
from posttrain.learning.models.build_optim import build_optimizer
from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.models.stored_tensors import TensorsApart, whole_piece
from posttrain.stage.errors import UserError
from tasks.sft.config import SftConfig


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("tied", [True, False])
def test_it_is_that_of_a_model_and_its_optimizer(kind, tied):
    config = LlamaConfig(
        vocab_size=30, hidden_size=8, intermediate_size=12, num_hidden_layers=1,
        num_attention_heads=2, tie_word_embeddings=tied,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    optimizer = build_optimizer(model, OptimizationConfig(optimizer=kind))
    model(input_ids=torch.ones(1, 3, dtype=torch.long)).logits.sum().backward()
    optimizer.step(learning_rate=0.1, max_grad_norm=1.0)
    apart = TensorsApart(whole_piece)
    apart.take({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "all")
    numbers = sum(p.num_bytes for p in apart.pieces.values() if p.tensor.ndim)
    stage = SftConfig.model_validate({"optimization": {"optimizer": kind}})
    assert numbers == checkpoint_size(StageQuestion(stage, shapes_of(config))).one


def test_a_budget_that_is_no_number_of_bytes_is_told_what_is():
    with pytest.raises(UserError, match=r"sft.learner.checkpoints.budget: .*200GB, got '1XB'"):
        SftConfig.parse({"learner": {"checkpoints": {"budget": "1XB"}}}, where="sft")
    read = SftConfig.parse({"learner": {"checkpoints": {"budget": "2kB"}}}, where="sft")
    assert read.learner.checkpoints.budget == 2000
