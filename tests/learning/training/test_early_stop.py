"""Early stop on a held-out loss: the rule, the split, and its place in a checkpoint."""

import polars as pl
import pytest

from posttrain.learning.models.load import weights_digest
from posttrain.learning.training.config import EarlyStopConfig, TrainingConfig
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.early_stop import hold_out
from posttrain.learning.training.next_token import Corpus, next_token_objective
from posttrain.learning.training.prepare import prepare_for_training
from posttrain.learning.training.stopping import StoppingConfig, StopRule
from posttrain.learning.training.supervised import train
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tests.quick import first_now


def test_the_rule_counts_measurements_that_are_no_better_than_the_best():
    rule = StopRule(StoppingConfig(patience=2, min_improvement=0.1), better="lower")
    # 0.95 is better than 1.0, but by less than 0.1; 0.8 starts the count anew.
    verdicts = [rule.observe(value) for value in (1.0, 0.95, 0.8, 0.9, 0.75)]
    assert verdicts == [False, False, False, False, True]
    assert rule.metrics() == {"best": 0.8, "waited": 2.0}


def test_the_rule_may_want_higher_numbers_and_goes_on_from_its_state():
    rule = StopRule(StoppingConfig(patience=2), better="higher")
    assert [rule.observe(value) for value in (0.5, 0.4)] == [False, False]
    again = StopRule(StoppingConfig(patience=2), better="higher")
    again.load_state_dict(rule.state_dict())
    assert again.observe(0.5)


def test_rows_of_one_prompt_are_held_out_together():
    keys = [f"prompt {index // 3}" for index in range(30)]
    taught, held = hold_out(keys, EarlyStopConfig(heldout_fraction=0.2), seed=0)
    assert sorted(taught + held) == list(range(30))
    assert len({keys[index] for index in held}) == 2
    assert not {keys[index] for index in held} & {keys[index] for index in taught}
    assert hold_out(keys, None, seed=0) == (list(range(30)), [])
    with pytest.raises(UserError, match="all rows have the same one"):
        hold_out(["a", "a"], EarlyStopConfig(), seed=0)


class Killed(BaseException):
    """Stands for a kill."""


def test_training_stops_when_the_heldout_loss_rises_also_after_a_kill(fresh, tmp_path):
    """Random texts can be learned by heart only, so the held-out loss soon rises."""
    config = TrainingConfig(
        steps=60,
        batch_tokens=120,
        optimization={"learning_rate": 0.03, "warmup_steps": 1},
        checkpoint_every=4,
        learner={"early_stop": {"every": 2, "patience": 2, "heldout_fraction": 0.3}},
    )
    prompts = [f"{index * 37 % 101}" for index in range(12)]
    texts = [f"{index * 7919 % 1009}" for index in range(12)]

    def attempt(scratch, kill=None):
        policy = fresh()

        def emit(event):
            if event["kind"] == "progress" and event["done"] == kill:
                raise Killed

        context = StageContext(seed=0, threads=1, device="cpu", scratch=scratch, emit=emit)
        objective, num_rows, _ = next_token_objective(
            policy, Corpus(prompts, texts), config=config, context=context, where="fit"
        )
        assert num_rows == 12
        trainable = prepare_for_training(policy.model, config.learner, seed=0)
        curve = Curve(context)
        made = train(
            trainable, objective, config=config, context=context, curve=curve, prefix="fit"
        )
        curve.write(scratch / "curve.parquet")
        return made, pl.read_parquet(scratch / "curve.parquet")

    made, curve = attempt(tmp_path / "whole")
    losses = curve.filter(metric="fit/heldout_loss")["value"].to_list()
    assert made < 60
    assert losses.index(min(losses)) == len(losses) - 3
    with pytest.raises(Killed):
        attempt(tmp_path / "cut", kill=made - 1)
    again, cut = attempt(tmp_path / "cut")
    assert again == made
    assert cut.equals(curve)


@pytest.mark.parametrize("average", first_now([None, 0.5]))
def test_the_best_weights_are_kept_also_after_a_kill(fresh, tmp_path, average):
    """They are those of a run that ends at the step of the least held-out loss."""
    stopping = {"every": 2, "patience": 3, "heldout_fraction": 0.3}

    def attempt(scratch, *, steps=60, keep="best", kill=None):
        learner = {"early_stop": {**stopping, "keep": keep}, "ema_decay": average}
        config = TrainingConfig(
            steps=steps,
            batch_tokens=120,
            optimization={"learning_rate": 0.03, "lr_schedule": "constant", "warmup_steps": 1},
            checkpoint_every=4,
            learner=learner,
        )
        policy = fresh()

        def emit(event):
            if event["kind"] == "progress" and event["done"] == kill:
                raise Killed

        context = StageContext(seed=0, threads=1, device="cpu", scratch=scratch, emit=emit)
        corpus = Corpus(
            [f"{index * 37 % 101}" for index in range(12)],
            [f"{index * 7919 % 1009}" for index in range(12)],
        )
        objective, *_ = next_token_objective(
            policy, corpus, config=config, context=context, where="fit"
        )
        trainable = prepare_for_training(policy.model, config.learner, seed=0)
        curve = Curve(context)
        made = train(
            trainable, objective, config=config, context=context, curve=curve, prefix="fit"
        )
        curve.write(scratch / "curve.parquet")
        losses = pl.read_parquet(scratch / "curve.parquet").filter(metric="fit/heldout_loss")
        return weights_digest(policy.model), made, losses.sort("value")["step"][0]

    kept, made, best = attempt(tmp_path / "whole")
    assert best < made
    assert attempt(tmp_path / "last", keep="last")[0] != kept
    assert attempt(tmp_path / "short", steps=best, keep="last")[0] == kept
    with pytest.raises(Killed):
        attempt(tmp_path / "cut", kill=made - 1)
    assert attempt(tmp_path / "cut")[0] == kept
