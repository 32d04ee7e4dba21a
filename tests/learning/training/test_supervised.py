import math

import polars as pl
import pytest
import torch

from posttrain.data.batching import Batches
from posttrain.data.rows import TokenRow, TokenTable
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import Policy, weights_digest
from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.training.config import LearnerConfig, TrainingConfig
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.prepare import prepare_for_training
from posttrain.learning.training.supervised import train
from posttrain.learning.training.supervised_objective import SupervisedObjective
from posttrain.learning.training.token_batches import fitting, next_token_loss, token_batches
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tests.quick import first_now

CONFIG = TrainingConfig(
    batch_tokens=60, epochs=2.0, optimization={"warmup_steps": 2}, checkpoint_every=3
)
ROWS = [
    TokenRow(
        (1, *(3 + (index * step) % 200 for step in range(2 + index % 5)), 2), start=1 + index % 2
    )
    for index in range(40)
]


class Killed(BaseException):
    """Stands for a kill at a chosen moment; nothing in the loop may catch it."""


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["3 + 4 = 7"] * 9, vocab_size=270)


@pytest.fixture
def policy(tokenizer):
    return Policy(build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0), tokenizer)


def fit(policy, context, *, config=CONFIG, loss=next_token_loss, rows=ROWS):
    curve = Curve(context)
    batches = token_batches(policy, rows, config=config, seed=0)
    learn(policy, batches, loss, config=config, context=context, curve=curve)
    return curve


def learn(policy, batches, loss, *, config, context, curve):
    trainable = prepare_for_training(policy.model, config.learner, seed=0)
    objective = SupervisedObjective(batches, loss)
    train(trainable, objective, config=config, context=context, curve=curve, prefix="fit")


def test_the_first_loss_is_near_ln_v_and_falls(policy, tmp_path):
    config = CONFIG.model_copy(
        update={"epochs": 9.0, "optimization": OptimizationConfig(learning_rate=0.03)}
    )
    curve = fit(policy, StageContext.quiet(tmp_path), config=config)
    curve.write(tmp_path / "curve.parquet")
    losses = pl.read_parquet(tmp_path / "curve.parquet").filter(metric="fit/loss")["value"]
    assert losses[0] == pytest.approx(math.log(len(policy.tokenizer)), abs=0.1)
    assert losses[-3:].mean() < 0.8 * losses[0]


def test_the_loss_is_the_mean_over_the_tokens_that_bear_loss(policy):
    batch = TokenTable(ROWS, pad=0).batch([0, 1, 2])
    loss, _ = next_token_loss(policy.model, batch, float(batch.num_units))
    logp = policy.model(input_ids=batch.input_ids_BT).logits[:, :-1].log_softmax(-1)
    taken = logp.gather(-1, batch.input_ids_BT[:, 1:, None])[..., 0][batch.wanted_BT[:, 1:]]
    assert loss.item() == pytest.approx(-taken.mean().item(), abs=1e-5)


def test_micro_batches_give_the_one_batch_result(tokenizer, tmp_path):
    results = []
    for micro in (None, 16):
        model = build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0)
        config = CONFIG.model_copy(update={"micro_batch_tokens": micro, "epochs": 0.2})
        curve = fit(
            Policy(model, tokenizer), StageContext.quiet(tmp_path / str(micro)), config=config
        )
        results.append((model.state_dict(), curve.metrics()))
    (one, metrics), (other, other_metrics) = results
    for name, value in one.items():
        assert torch.allclose(value, other[name], atol=1e-5), name
    assert metrics == pytest.approx(other_metrics, abs=1e-5)


CUT = {
    "adamw": {},
    "muon": {"optimizer": "muon"},
    "bf16, stochastic": {},
    "bf16, kahan, muon": {"optimizer": "muon", "rounding": "kahan"},
    "bf16, 8bit, within, host": {
        "states": "8bit",
        "in_backward": True,
        "max_grad_norm": None,
        "offload": True,
    },
}


@pytest.mark.parametrize("name", first_now([*CUT]))
def test_a_run_cut_anywhere_ends_with_the_same_weights_and_curve(tokenizer, tmp_path, name):
    if "8bit" in name:
        pytest.importorskip("bitsandbytes")
    config = CONFIG.model_copy(
        update={
            "optimization": OptimizationConfig(**CUT[name]),
            "learner": LearnerConfig(weights="bf16" if "bf16" in name else "fp32"),
        }
    )

    def attempt(scratch, *, stop_after=None):
        policy = Policy(build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0), tokenizer)

        def emit(event):
            if event["kind"] == "progress" and event["done"] == stop_after:
                raise Killed

        context = StageContext(seed=0, threads=1, device="cpu", scratch=scratch, emit=emit)
        try:
            curve = fit(policy, context, config=config)
        except Killed:
            return None
        return weights_digest(policy.model), curve.state_dict()

    whole = attempt(tmp_path / "whole")
    num_steps = max(step for step, _, _ in whole[1]["rows"])
    assert num_steps >= 8
    for stop in range(1, num_steps + 1):
        scratch = tmp_path / f"cut{stop}"
        assert attempt(scratch, stop_after=stop) is None
        assert attempt(scratch) == whole, f"stopped after step {stop}"


def test_a_resumed_run_does_not_repeat_finished_steps(policy, tmp_path):
    events = []
    context = StageContext(seed=0, threads=1, device="cpu", scratch=tmp_path, emit=events.append)
    before = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
    fit(policy, context)
    total = max(event["total"] for event in events if event["kind"] == "progress")
    events.clear()
    # A killed attempt begins again from the weights of the input.
    policy.model.load_state_dict(before)
    fit(policy, context)
    done = [event["done"] for event in events if event["kind"] == "progress"]
    last = total - total % 3
    assert done == list(range(last + 1, total + 1))
    assert {"kind": "note", "line": f"resuming after step {last} of {total}"} in events


def test_a_checkpoint_that_began_from_other_weights_or_rows_is_refused(policy, tmp_path):
    before = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
    fit(policy, StageContext.quiet(tmp_path))
    with pytest.raises(UserError, match=r"was made with inputs\.weights=\w+, now it is \w+"):
        fit(policy, StageContext.quiet(tmp_path))
    policy.model.load_state_dict(before)
    with pytest.raises(UserError, match=r"was made with seed=0, now it is 1; remove"):
        fit(policy, StageContext.quiet(tmp_path, seed=1))


def test_a_loss_that_is_not_finite_stops_with_the_step(policy, tmp_path):
    calls = []

    def broken(model, batch, denominator):
        calls.append(1)
        loss, metrics = next_token_loss(model, batch, denominator)
        return (loss * math.nan if len(calls) == 3 else loss), metrics

    with pytest.raises(UserError, match="^fit step 3: the loss is nan, so training stopped"):
        fit(policy, StageContext.quiet(tmp_path), loss=broken)


def test_metrics_of_micro_batches_are_weighted_by_their_units(policy, tmp_path):
    rows = [TokenRow((1, 5, 2), 1), TokenRow((1, 5, 6, 7, 8, 9, 2), 1)]
    batches = Batches([[0, 1]], [3, 7], TokenTable(rows, pad=0).batch, micro_batch_tokens=7)

    def loss(model, batch, denominator):
        return next_token_loss(model, batch, denominator)[0], {
            "units": torch.tensor(batch.num_units)
        }

    curve = Curve(StageContext.quiet(tmp_path))
    learn(policy, batches, loss, config=CONFIG, context=StageContext.quiet(tmp_path), curve=curve)
    # 2 units of a part with 2, 6 units of a part with 6: (2 x 2 + 6 x 6) / 8.
    assert curve.metrics()["fit/units"] == 5.0


def test_wall_clock_reaches_the_tracker_but_not_the_curve(policy, tmp_path):
    events = []
    context = StageContext(seed=0, threads=1, device="cpu", scratch=tmp_path, emit=events.append)
    curve = fit(policy, context)
    logged = {name for event in events if event["kind"] == "metrics" for name in event["metrics"]}
    assert logged - set(curve.metrics()) == {"fit/seconds_per_step"}


def test_a_limit_that_leaves_out_most_rows_is_refused():
    config = TrainingConfig(max_length=10)
    config.refuse_leaving_out([10, 11], what="rows", where="sft")
    config.refuse_leaving_out([], what="rows", where="sft")
    with pytest.raises(UserError, match="sft: 67% of the rows .* the longest has 12 tokens; raise"):
        config.refuse_leaving_out([10, 11, 12], what="rows", where="sft")


def test_rows_that_are_too_long_are_left_out_but_not_all_of_them():
    rows = [TokenRow((1, 2), 1), TokenRow((1, 5, 6, 2), 1)]
    assert fitting(rows, max_length=3, where="sft") == [0]
    with pytest.raises(UserError, match="^sft: no row fits into max_length 1, the shortest has 2"):
        fitting(rows, max_length=1, where="sft")


def test_a_micro_batch_larger_than_its_batch_is_refused():
    with pytest.raises(UserError, match="micro_batch_tokens 99 exceeds batch_tokens 60"):
        TrainingConfig.parse({"batch_tokens": 60, "micro_batch_tokens": 99}, where="sft")
