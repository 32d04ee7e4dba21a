"""Numbers in the losses on pairs that change: what each step is given, also after a kill."""

import importlib
from pathlib import Path

import polars as pl
import pytest

from posttrain.learning.preference import training
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tests.quick import first_now

COMMON = {"steps": 4, "batch_tokens": 400, "checkpoint_every": 1}
HALVING = {"from": 0.4, "to": 0.2, "over": 2}
RISING = {"from": 0.0, "to": 0.3, "over": 3}
# A loss lies between 0 and 10, so that after the first step it is neither 1.0 nor 0.5.
FOLLOWING = {"from": 1.0, "to": 0.5, "low": 0.0, "high": 10.0}
SCHEDULED = {
    "preference": {
        "algorithm": {
            "beta": {**FOLLOWING, "metric": "preference/loss"},
            "sft_coefficient": RISING,
        },
        "sampling": {"max_tokens": 4},
    },
    "reward": {"centering": HALVING},
}


class Killed(BaseException):
    """Stands for a kill; nothing in a stage may catch it."""


@pytest.fixture
def go(answers, base, write, tmp_path):
    """Run a stage on sums; returns its outputs, or None where it was killed after a step."""

    def run(name, config, folder, *, stop_after=None):
        def emit(event):
            if event["kind"] == "progress" and event["done"] == stop_after:
                raise Killed

        package = importlib.import_module(f"tasks.{name}")
        stage = importlib.import_module(f"tasks.{name}.stage")
        outputs = {port: tmp_path / folder / port for port in package.TASK.outputs}
        (tmp_path / folder).mkdir(exist_ok=True)
        context = StageContext(0, 1, "cpu", tmp_path / folder / "scratch", emit)
        inputs = {"policy": base, "samples": write(answers)}
        try:
            parsed = package.TASK.config.parse({**COMMON, **config}, where=name)
            stage.run(parsed, inputs, outputs, context)
        except Killed:
            return None
        return outputs

    return run


@pytest.fixture
def given(monkeypatch):
    """What the losses were given, call by call: beta and SFT's weight, or the centering."""
    import tasks.reward.readings as reward

    found = []
    made, paired = training.batch_loss, reward.bradley_terry_loss

    def batch_loss(algorithm):
        loss = made(algorithm)

        def noting(*arguments):
            found.append((algorithm.beta, algorithm.sft_coefficient))
            return loss(*arguments)

        return noting

    def bradley_terry_loss(*arguments, centering, **named):
        found.append(centering)
        return paired(*arguments, centering=centering, **named)

    monkeypatch.setattr(training, "batch_loss", batch_loss)
    monkeypatch.setattr(reward, "bradley_terry_loss", bradley_terry_loss)
    return found


def losses(outputs, name):
    return pl.read_parquet(outputs["curve"]).filter(metric=f"{name}/loss")["value"].to_list()


def test_centering_is_that_of_the_step(go, given):
    go("reward", SCHEDULED["reward"], "whole")
    assert given == pytest.approx([0.4, 0.3, 0.2, 0.2])


def test_beta_follows_the_loss_of_the_step_before(go, given):
    outputs = go("preference", SCHEDULED["preference"], "whole")
    before = losses(outputs, "preference")[:-1]
    # From 1.0 at a loss of 0 to 0.5 at one of 10; and before the first step it is as it begins.
    assert [beta for beta, _ in given] == pytest.approx([1.0, *(1 - x / 20 for x in before)])
    assert [weight for _, weight in given] == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert len(set(given)) == 4


@pytest.mark.parametrize("name", first_now(SCHEDULED))
def test_a_killed_run_goes_on_with_the_numbers_of_the_whole_one(go, given, name):
    whole = go(name, SCHEDULED[name], "whole")
    expected = list(given)
    given.clear()
    assert go(name, SCHEDULED[name], "cut", stop_after=3) is None
    # The third step was not checkpointed yet, and is made again.
    resumed = go(name, SCHEDULED[name], "cut")
    assert given == [*expected[:3], *expected[2:]]
    assert Path(resumed["curve"]).read_bytes() == Path(whole["curve"]).read_bytes()


@pytest.mark.slow
def test_a_constant_schedule_is_the_plain_number(go):
    constant = {"from": 0.3, "to": 0.3, "over": 2}
    made = [
        go("preference", {**SCHEDULED["preference"], "algorithm": {"beta": beta}}, folder)
        for beta, folder in ((0.3, "plain"), (constant, "constant"))
    ]
    plain, scheduled = (Path(each["curve"]).read_bytes() for each in made)
    assert plain == scheduled


@pytest.mark.parametrize(
    ("name", "config", "sentence"),
    [
        ("reward", {"scale": HALVING}, "reward.scale: this number takes no schedule, as it is"),
        ("reward", {"pairs_per_problem": HALVING}, "takes no schedule, as it is read once, before"),
        ("reward", {"optimization": {"weight_decay": HALVING}}, "weight_decay: .* is read once"),
        ("preference", {"algorithm": {"length_alpha": HALVING}}, "length_alpha: .* is read once"),
        ("preference", {"batch_tokens": HALVING}, "batch_tokens: this number .* is read once"),
        ("rl", {"updates": {"minibatches": HALVING}}, "minibatches: this number .* is read once"),
        ("rl", {"steps": HALVING}, "rl.steps: this number takes no schedule, as it is read once"),
        (
            "reward",
            {"centering": {**FOLLOWING, "metric": "reward/acuracy"}},
            "centering: no metric is called 'reward/acuracy'; did you mean 'reward/accuracy'",
        ),
        (
            "preference",
            {"algorithm": {"beta": {**FOLLOWING, "metric": "preference/chosen_nll"}}},
            "algorithm.beta: no metric is called 'preference/chosen_nll'",
        ),
        ("preference", {"algorithm": {"beta": {"from": 1.0, "to": 0.0, "over": 2}}}, "beta: .* 0"),
    ],
)
def test_what_cannot_change_is_refused_in_one_sentence(name, config, sentence):
    with pytest.raises(UserError, match=sentence) as error:
        importlib.import_module(f"tasks.{name}").TASK.config.parse(config, where=name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", SCHEDULED)
def test_a_schedule_is_dumped_as_it_was_written_and_parses_again(name):
    config = importlib.import_module(f"tasks.{name}").TASK.config
    parsed = config.parse(SCHEDULED[name], where=name)
    assert config.parse(parsed.model_dump(mode="json"), where=name) == parsed
