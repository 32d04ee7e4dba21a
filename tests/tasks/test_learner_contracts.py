"""What every stage that learns from rows has in common: names of metrics, and early refusals."""

import importlib

import polars as pl
import pytest

from posttrain.learning.models.load import load_policy, save_policy
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError

CONFIG = {
    "steps": 2,
    "batch_tokens": 400,
    "learner": {"early_stop": {"every": 1, "patience": 9}},
    "checkpoint_every": 0,
}
SMALL = {"hidden": 16, "layers": 1, "heads": 2, "vocab_size": 290}
STAGES = {
    "pretrain": ("corpus", SMALL),
    "sft": ("traces", {}),
    "reward": ("samples", {}),
    "preference": ("samples", {"sampling": {"max_tokens": 4}}),
}
SHARED = {"loss", "grad_norm", "learning_rate", "heldout_loss"}
PAIRED = SHARED | {"accuracy", "margin", "chosen_reward", "rejected_reward"}
METRICS = {"pretrain": SHARED, "sft": SHARED, "reward": PAIRED, "preference": PAIRED}
RAMP = {"from": 1.0, "to": 0.5, "low": 0.0, "high": 1.0}


@pytest.fixture
def train(answers, base, write, tmp_path):
    """Run a stage on the sums; returns where its outputs are, and what it told."""

    def run(name, policy=base, **given):
        role, more = STAGES[name]
        rows = answers.filter("verified") if name == "sft" else answers
        task = importlib.import_module(f"tasks.{name}").TASK
        outputs = {port: tmp_path / name / port for port in task.outputs}
        (tmp_path / name).mkdir()
        events = []
        context = StageContext(0, 1, "cpu", tmp_path / name / "scratch", events.append)
        try:
            importlib.import_module(f"tasks.{name}.stage").run(
                task.config(**{**CONFIG, **more, **given}),
                {"policy": policy, role: write(rows)},
                outputs,
                context,
            )
        finally:
            run.events = events
        return outputs

    return run


@pytest.mark.parametrize("name", STAGES)
def test_the_curve_has_the_same_names_in_every_run(train, name):
    curve = pl.read_parquet(train(name)["curve"])
    assert set(curve["metric"]) == {f"{name}/{metric}" for metric in METRICS[name]}
    assert_declared(name, curve, CONFIG)


@pytest.mark.parametrize("name", STAGES)
def test_without_an_early_stop_nothing_held_out_is_measured_or_declared(train, name):
    curve = pl.read_parquet(train(name, learner={})["curve"])
    assert f"{name}/heldout_loss" not in set(curve["metric"])
    assert_declared(name, curve, {})


def assert_declared(name, curve, given):
    config = importlib.import_module(f"tasks.{name}").TASK.config(**given)
    assert set(curve["metric"]) == {f"{name}/{metric}" for metric in config.metrics()}


@pytest.mark.parametrize("name", STAGES)
def test_a_number_follows_metrics_of_the_stage_alone(name):
    def following(metric, **given):
        number = {**RAMP, "metric": metric}
        values = {"optimization": {"max_grad_norm": number}, **given}
        return importlib.import_module(f"tasks.{name}").TASK.config.parse(values, where=name)

    following(f"{name}/grad_norm")
    following(f"{name}/heldout_loss", learner=CONFIG["learner"])
    where = f"{name}: optimization.max_grad_norm: no metric is called"
    with pytest.raises(UserError, match=f"{where} '{name}/grad_nrm'; did you mean '{name}/grad_n"):
        following(f"{name}/grad_nrm")
    with pytest.raises(UserError, match=f"{where} 'rl/reward'"):
        following("rl/reward")
    with pytest.raises(UserError, match=f"{where} '{name}/heldout_loss', as learner.early_stop is"):
        following(f"{name}/heldout_loss")


FORGETFUL = "{% for m in messages if m['role'] == 'user' %}[user]{{ m['content'] }}{% endfor %}"


@pytest.mark.parametrize("name", STAGES)
def test_a_template_that_drops_the_answer_is_refused_before_the_first_step(
    train, base, tmp_path, name
):
    policy = load_policy(base)
    policy.tokenizer.chat_template = FORGETFUL
    save_policy(policy.model, policy.tokenizer, tmp_path / "forgetful")
    with pytest.raises(UserError, match="chat template drops the answer"):
        train(name, tmp_path / "forgetful")
    assert not any(event["kind"] == "progress" for event in train.events)
