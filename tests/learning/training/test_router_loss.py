"""A router's loss: transformers' own where there is one layer, and one number for any cut."""

import pytest
import torch

from posttrain.data.batching import Batches
from posttrain.data.rows import TokenRow, TokenTable
from posttrain.learning.models.adapters import attach_adapter
from posttrain.learning.models.build_optim import build_optimizer
from posttrain.learning.training.config import LearnerConfig, TrainingConfig
from posttrain.learning.training.prepare import prepare_for_training
from posttrain.learning.training.router_loss import balanced
from posttrain.learning.training.supervised_objective import RoutedRows, SupervisedObjective
from posttrain.learning.training.token_batches import next_token_loss, routed_rows
from posttrain.learning.training.trainer import SupervisedTrainer
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tests.architectures import model_of

COEFFICIENT = 0.5
ROWS = [
    TokenRow(tuple(range(10 + n, 14 + 3 * n)), start=1 + n % 2) for n in range(4)
]  # of 4, 6, 8, 10 tokens


def accumulated(model, tmp_path, *, micro_batch_tokens=None, packed=False, config=None):
    """The metrics and the gradient of one step over all rows."""
    lengths = [len(row.ids) for row in ROWS]
    table = TokenTable(ROWS, pad=0, packed=packed)
    objective = SupervisedObjective(
        Batches([[0, 1, 2, 3]], lengths, table.batch, micro_batch_tokens, packed),
        next_token_loss,
        routed=routed_rows,
    )
    trainable = prepare_for_training(model, config or LearnerConfig(), seed=0)
    context = StageContext.quiet(tmp_path)
    trainer = SupervisedTrainer(trainable, balanced(objective, model, COEFFICIENT), context)
    model.zero_grad()
    parts = trainer.micro_batches(0)
    metrics = trainer.backward(parts, build_optimizer(model), where="fit")
    gradient = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return metrics, gradient, len(parts)


def test_of_one_layer_it_is_transformers_own_with_its_gradient(tmp_path):
    model = model_of("mixtral", num_hidden_layers=1)
    metrics, found, _ = accumulated(model, tmp_path)

    batch = TokenTable(ROWS, pad=0).batch(range(4))
    ids, mask = batch.input_ids_BT, RoutedRows(batch.input_ids_BT, batch.wanted_BT).real_BT
    assert mask.sum(-1).tolist() == [4, 6, 8, 10]
    model.zero_grad()
    theirs = model(input_ids=ids, attention_mask=mask.long(), output_router_logits=True)
    taken = theirs.logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    loss = -taken[batch.wanted_BT[:, 1:]].mean()
    (loss + COEFFICIENT * theirs.aux_loss).backward()
    assert metrics["router_loss"] == pytest.approx(float(theirs.aux_loss), rel=1e-5)
    assert metrics["loss"] == pytest.approx(float(loss + COEFFICIENT * theirs.aux_loss), rel=1e-5)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"micro_batch_tokens": 12},
        {"packed": True},
        {"packed": True, "micro_batch_tokens": 12},
        {"micro_batch_tokens": 12, "config": LearnerConfig(activation_checkpointing=True)},
    ],
)
def test_it_is_the_same_however_a_step_is_cut(options, tmp_path):
    whole, gradient, parts = accumulated(model_of("qwen3_moe"), tmp_path)
    assert parts == 1
    model = model_of("qwen3_moe").train("config" in options)
    cut, other, parts = accumulated(model, tmp_path, **options)
    assert (parts > 1) == ("micro_batch_tokens" in options)
    assert cut == pytest.approx(whole, rel=1e-5)
    for name, value in gradient.items():
        torch.testing.assert_close(other[name], value, atol=1e-5, rtol=1e-4)


def test_it_reaches_adapters_and_is_left_out_of_what_is_held_out(tmp_path):
    model = model_of("qwen3_moe")
    attach_adapter(model, rank=2, alpha=4)
    plain = next_token_loss
    objective = SupervisedObjective(Batches([], [], None), plain, routed=routed_rows)
    both = balanced(objective, model, COEFFICIENT).loss
    batch = TokenTable(ROWS, pad=0).batch(range(4))
    value, metrics = both(model, batch, 20.0)
    assert value.requires_grad
    assert "router_loss" in metrics
    with torch.no_grad():
        assert both(model, batch, 20.0)[0] == plain(model, batch, 20.0)[0]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("qwen2", "the architecture 'qwen2' has no router of experts that a loss keeps"),
        ("deepseek_v3", "'deepseek_v3' has no router of experts that a loss keeps even"),
        ("minimax_m2", "'minimax_m2' balances its experts by a bias of the router"),
    ],
)
def test_what_has_no_router_to_balance_is_refused(name, sentence):
    objective = SupervisedObjective(Batches([], [], None), next_token_loss, routed=routed_rows)
    with pytest.raises(UserError, match=sentence):
        balanced(objective, model_of(name), COEFFICIENT)


def test_a_stage_that_cannot_train_it_says_so():
    objective = SupervisedObjective(Batches([], [], None), next_token_loss)
    with pytest.raises(UserError, match="this stage does not train it"):
        balanced(objective, model_of("mixtral"), COEFFICIENT)


def test_its_metric_is_declared_where_it_is_asked_for():
    assert "router_loss" not in TrainingConfig().metrics()
    assert "router_loss" in TrainingConfig(learner={"router_loss": 0.01}).metrics()
