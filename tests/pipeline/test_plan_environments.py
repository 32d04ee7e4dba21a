"""What the plan knows of environments: samples that nobody may train on, and stages that differ."""

import pytest

from posttrain.cli.plan_notes import several_environments
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Reference, Stage
from tasks.evaluate import TASK as EVALUATE
from tasks.probe import TASK as PROBE
from tasks.reward import TASK as REWARD
from tasks.rl import TASK as RL


def stage(name, task, inputs=None, **values):
    return Stage(name, task, task.config.parse(values, where=name), inputs or {})


def dag(*stages):
    return Dag({each.name: each for each in stages})


def test_samples_of_episodes_are_nothing_to_train_on():
    samples = {"samples": Reference(ArtifactKind.COMPLETIONS, "probe", "samples")}
    for environment in ("single", "calculator"):
        probe = stage("probe", PROBE, environment=environment)
        flow = dag(probe, stage("reward", REWARD, samples))
        if environment == "single":
            PROBE.refuse(probe, flow)
            continue
        with pytest.raises(UserError, match="probe.environment: reward would train on the samples"):
            PROBE.refuse(probe, flow)
        PROBE.refuse(
            probe,
            dag(
                probe,
                stage(
                    "rl",
                    RL,
                    {"solve_rates": Reference(ArtifactKind.SOLVE_RATES, "probe", "solve_rates")},
                ),
            ),
        )


def test_stages_that_play_in_different_environments_are_named():
    playing = {"kind": "episodes", "environment": "calculator"}
    flow = dag(
        stage("probe", PROBE),
        stage("rl", RL, producer=playing),
        stage("evaluate", EVALUATE, environment="calculator"),
    )
    assert several_environments(flow).startswith(
        "problems are attempted in more than one environment (probe: single; rl, evaluate:"
        " calculator), so that"
    )


@pytest.mark.parametrize("producer", ["plain", "episodes"])
def test_who_asks_once_plays_in_no_other_environment(producer):
    flow = dag(stage("probe", PROBE), stage("rl", RL, producer=producer), stage("ev", EVALUATE))
    assert several_environments(flow) is None
