"""What the plan knows of environments: samples that nobody may train on, and stages that differ."""

from pathlib import Path

import pytest

from posttrain.operations.plan_notes import several_environments
from posttrain.pipeline.recipe import load_recipe
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Reference, Stage
from tasks.evaluate import TASK as EVALUATE
from tasks.preference import TASK as PREFERENCE
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


def test_a_stage_that_learns_from_all_that_was_said_may_have_the_samples_of_episodes():
    samples = {"samples": Reference(ArtifactKind.COMPLETIONS, "probe", "samples")}
    probe = stage("probe", PROBE, environment="calculator")
    PROBE.refuse(probe, dag(probe, stage("preference", PREFERENCE, samples, turns="assistant")))
    with pytest.raises(UserError, match="set preference.turns to assistant, or set probe.environ"):
        PROBE.refuse(probe, dag(probe, stage("preference", PREFERENCE, samples)))


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


GUESS = "{kind: world, name: g, world: {kind: guess, size: 8}}"


@pytest.fixture
def told(tmp_path):
    """What is refused of a recipe that plays: its source, and the environments of its stages."""

    def resolve(source, playing, evaluated):
        if "{" not in playing:
            playing = f"{{kind: episodes, environment: {playing}}}"
        (tmp_path / "recipe.yaml").write_text(
            f"flow: flows.play\nformat: 3\nsynthesize: {{sources: [{source}]}}\n"
            f"rl: {{producer: {playing}}}\nevaluate: {{environment: {evaluated}}}\n"
        )
        (tmp_path / "j.jsonl").write_text('{"prompt": "p", "answer": "1", "solution": "1"}\n')
        try:
            load_recipe(tmp_path).resolve(Path(__file__).parents[2])
        except UserError as refused:
            return str(refused)
        return ""

    return resolve


def test_problems_of_a_world_are_played_in_that_world(told):
    whose = "rl attempts problems of source 'g' of synthesize"
    assert told(GUESS, "doors", "guess") == (
        f"rl.producer.environment: {whose}, which the world guess has posed, and doors plays those"
        " that it posed itself; name guess there, or take {kind: world, world: doors} as the source"
    )
    assert told(GUESS, "{kind: plain}", "guess") == (
        f"rl.producer.environment: {whose}, and what is said of these only their world can judge;"
        " name the world guess there, not single"
    )
    # What no world posed none can begin; what stands in a file only its rows tell.
    gym = "{kind: reasoning_gym, name: chain_sum}"
    assert "which no world has posed" in told(gym, "guess", "single")
    assert told("{kind: jsonl, name: j, path: j.jsonl, verifier: played}", "guess", "guess") == ""


def test_a_world_is_set_in_the_source_alone(told):
    assert told(GUESS, "guess", "{kind: guess, size: 9}") == (
        "evaluate.environment.size: 9 would change nothing, as a problem brings along what its"
        " world was set to; leave it out, or set it in source 'g' of synthesize"
    )
    assert told(GUESS, "guess", "{kind: guess, size: 8}") == ""
