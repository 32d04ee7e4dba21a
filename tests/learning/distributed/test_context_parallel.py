"""Two processes that share the tokens of each batch learn what one does."""

from types import SimpleNamespace

import pytest
import torch
from transformers import (
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForSequenceClassification,
)

from posttrain.learning.training.context_parallel import ContextParallelTrainer
from posttrain.stage.errors import UserError
from tests.learning.distributed.test_parity import TOLERANCE, gap

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("task", "config"),
    [
        ("sft", {"learner": {"packing": True, "early_stop": {"every": 3}}}),
        ("sft", {"learner": {"activation_checkpointing": True}, "micro_batch_tokens": 60}),
        ("preference", {"algorithm": "dpo", "learner": {"packing": True}}),
    ],
)
def test_tokens_computed_together_give_the_curve_of_one_process(stages, tmp_path, task, config):
    one = stages.run(task, tmp_path / "one", processes=1, config=config)
    shared = {**config, "learner": {**config["learner"], "context_parallel": True}}
    two = stages.run(task, tmp_path / "two", processes=2, config=shared)
    assert (one.outcome.error, two.outcome.error) == (None, None)
    assert gap(one.curve(), two.curve()) < TOLERANCE
    losses = [value for (_, name), value in one.curve().items() if name.endswith("/loss")]
    # It learned far more than the tolerance, so equal curves say something.
    assert min(losses) < losses[0] - 50 * TOLERANCE


def test_a_model_that_attends_in_chunks_refuses_it():
    """Those that are tried before training are shorter than a chunk, so they would not show it."""
    with torch.device("meta"):
        sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 4}
        config = Llama4TextConfig(vocab_size=40, num_local_experts=2, **sizes)
        model = Llama4ForCausalLM(config)
    trainer = SimpleNamespace(trainable=SimpleNamespace(model=model))
    with pytest.raises(UserError, match="Llama4ForCausalLM attends in chunks"):
        ContextParallelTrainer._check(trainer)


def test_a_model_of_scores_refuses_it():
    """One of a package's own stage, as those here refuse it by their configs."""
    with torch.device("meta"):
        sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
        heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
        model = LlamaForSequenceClassification(LlamaConfig(vocab_size=40, **sizes, **heads))
    trainer = SimpleNamespace(trainable=SimpleNamespace(model=model))
    with pytest.raises(UserError, match="LlamaForSequenceClassification gives scores"):
        ContextParallelTrainer._check(trainer)
