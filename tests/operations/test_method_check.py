"""Switches of methods change what is learned, or are told as doing nothing."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from posttrain.cli.main import cli
from posttrain.cli.method_check import _effect_line, _legend
from posttrain.methods.find import find_method
from posttrain.methods.method import Method
from posttrain.operations.method_check import ALL_OF_IT, SwitchEffect, switch_effects
from posttrain.operations.tiny_world import NotInTinyWorldError, make_tiny_world
from posttrain.pipeline.recipe_schema import stages_of_flow
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind

ROOT = Path(__file__).parents[2]
# One update of rollouts of its own policy has ratio 1, which no dual clip reaches.
NO_CLIP = {"algorithm": {"surrogate": {"dual": 3.0}}}
STORED = {
    "inputs": {"verdicts": "judge.verdicts"},
    "reward": {"components": {"right": "verifier", "told": {"kind": "stored", "verdict": "x"}}},
}


def method(name, **sets):
    said = {"title": name, "source": {"paper": "a note"}, "family": "pg", "says": "Nothing."}
    return Method.parse({"name": name, **said, "sets": sets}, where=name)


def project(root, *methods):
    """A project with methods of its own."""
    (root / ".dvc").mkdir()
    for each in methods:
        file = root / "methods" / "pg" / f"{each.name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(each.model_dump(mode="json")))


def kept(root):
    lines = (root / "methods" / "checks.jsonl").read_text().splitlines()
    return {line["method"]: line for line in map(json.loads, lines)}


def effects(known, world):
    return {(each.section, each.switch): each for each in switch_effects(known, world)}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    tasks = stages_of_flow("flows.post_training", ROOT)
    return make_tiny_world(tmp_path_factory.mktemp("world"), tasks)


def test_the_legend_says_of_what_is_there_what_it_means_and_no_more():
    def legend(*effects):
        return [line.split(":")[0].split(".")[0] for line in _legend(effects)]

    weights = SwitchEffect("m", "rl", "a", 0.5)
    figures = SwitchEffect("m", "evaluate", "b", 0.5)
    needed = SwitchEffect("m", "rl", "c", None)
    closing = "That a switch acts is all that this shows"
    assert legend(weights) == ["% of training", closing]
    assert legend(figures, needed) == ["% of figures", "the rest needs it", closing]
    assert legend() == []
    assert _effect_line(figures, first=False).endswith("50.0% of figures")


def test_what_runs_is_told_before_it_runs(world):
    told = []
    done = [each.switch for each in switch_effects(method("idle", rl=NO_CLIP), world, told.append)]
    assert done == [ALL_OF_IT, "algorithm.surrogate"]
    assert told == [
        "what it reads",
        "rl as it sets it",
        "rl by default",
        "rl without algorithm.surrogate",
    ]


def test_what_acts_and_what_does_nothing_is_told_apart(world):
    found = effects(find_method("grpo").method, world)
    assert found["rl", ALL_OF_IT].acts
    assert found["rl", "algorithm.advantage"].acts
    assert found["rl", "algorithm.regularizers"].acts
    idle = effects(method("idle", rl=NO_CLIP), world)
    assert idle.keys() == {("rl", ALL_OF_IT), ("rl", "algorithm.surrogate")}
    assert [each.change for each in idle.values()] == [0.0, 0.0]
    assert not idle["rl", ALL_OF_IT].acts


@pytest.mark.slow
def test_what_the_rest_needs_cannot_be_taken_out(world):
    found = effects(find_method("simpo").method, world)
    assert found["preference", ALL_OF_IT].acts
    assert found["preference", "algorithm.per_token"].change is None
    assert "set per_token to true" in found["preference", "algorithm.per_token"].remark


@pytest.mark.slow
def test_a_method_that_trains_nothing_is_judged_by_its_figures(world):
    """A blind diagnostic says the same of what was trained and of what was not."""
    looking = {
        "seeing": {"kind": "behavior_baseline"},
        # A tolerance that hides every change.
        "blind": {"kind": "weight_delta", "tolerance": 100.0},
    }
    found = effects(method("looks", diagnose={"diagnostics": looking}), world)
    assert found["diagnose", "diagnostics.seeing"].acts
    assert "where nothing was trained" in found["diagnose", "diagnostics.seeing"].told
    assert not found["diagnose", "diagnostics.blind"].acts
    # One that sees nothing is not hidden by another one that does.
    assert not found["diagnose", ALL_OF_IT].acts
    variants = {"short": {"kind": "budgets", "tokens": [2, 8]}}
    found = effects(method("graded", evaluate={"variants": variants}), world)
    assert found.keys() == {("evaluate", ALL_OF_IT)}
    assert found["evaluate", ALL_OF_IT].acts


def test_a_method_of_no_such_section_has_no_line(world):
    assert effects(find_method("default").method, world) == {}
    assert effects(method("beside", curate={"order": "mixed"}), world) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["format_gate", "rlcr"])
def test_a_reward_of_what_only_some_texts_have_acts(world, name):
    found = effects(find_method(name).method, world)
    assert found.keys() == {("rl", ALL_OF_IT), ("rl", "reward")}
    assert all(each.acts for each in found.values())


def test_what_a_method_connects_is_there_and_what_asks_for_it_cannot_do_without(world):
    found = effects(find_method("proxy_reward").method, world)
    assert found["rl", ALL_OF_IT].change > 0.1
    connected = found["rl", "inputs.reward_models.proxy"]
    assert connected.change is None
    assert "it asks reward_models.proxy, which is not connected" in connected.remark
    assert "asks for this; add" in found["rl", "reward"].remark


def test_a_connection_is_the_worlds_own_artifact_of_the_ports_kind(world):
    usual = world.inputs["rl"]
    connected = {"reference": "nobody.policy", "reward_models": {"a": "x.y"}, "solve_rates": None}
    given = world.inputs_of("rl", {"inputs": connected})
    assert given.keys() == {"policy", "problems", "reference", "reward_models.a"}
    # A reference that is what training starts from would hide what it does.
    weights = [given[port] / "model.safetensors" for port in ("policy", "reference")]
    assert weights[0].read_bytes() != weights[1].read_bytes()
    # Both are of one run of the reward stage.
    pairs = world.inputs_of("preference", {"inputs": {"pairs": "a.b", "samples": None}})
    assert pairs["pairs"].parent == given["reward_models.a"].parent
    assert world.inputs_of("rl", {}) == usual
    with pytest.raises(UserError, match=r"rl\.inputs\.rewards: there is no such input"):
        world.inputs_of("rl", {"inputs": {"rewards": "a.b"}})


@pytest.mark.slow
def test_a_method_is_looked_at_on_what_its_own_sections_make(world):
    """Of a world's episodes the policy says several turns; of the usual samples, one."""
    source = {"kind": "world", "world": {"kind": "bandit", "presses": 3}}
    taught = {"turns": "assistant", "inputs": {"traces": "synthesize.corpus"}}
    own = method("own", synthesize={"sources": [source]}, sft=taught)
    found = effects(own, world)
    assert found.keys() == {("sft", ALL_OF_IT), ("sft", "turns"), ("sft", "inputs.traces")}
    assert all(each.change > 0.1 for each in found.values())
    assert not effects(method("others", sft=taught), world)["sft", ALL_OF_IT].acts
    # What it makes is its own: the next method has the world as it was.
    assert world.inputs_of("sft", taught) == world.inputs["sft"]
    wrong = method("wrong", synthesize={}, sft={"inputs": {"traces": "synthesize.trace"}})
    told = r"sft\.inputs\.traces: synthesize has no output 'trace'; did you mean 'traces'\?"
    with pytest.raises(UserError, match=told):
        effects(wrong, world)


@pytest.mark.slow  # every kind that is there is started
@pytest.mark.parametrize("section", ["rl", "preference"])
def test_every_kind_that_these_stages_read_is_there_or_told(world, section):
    for port, known in world.tasks[section].inputs.items():
        said = {"inputs": {port: {"a": "x.y"} if known.many else "x.y"}}
        if known.type in (ArtifactKind.VERDICTS, ArtifactKind.VERIFIERS):
            told = f"{section}.inputs.{port} reads {known.type}, and the tiny world has none"
            with pytest.raises(NotInTinyWorldError, match=told):
                world.inputs_of(section, said)
        else:
            assert all(path.exists() for path in world.inputs_of(section, said).values())


@pytest.mark.slow
def test_sections_of_a_method_are_looked_at_one_by_one(world):
    both = method("both", preference={"algorithm": {"beta": 0.5}}, rl=NO_CLIP)
    found = effects(both, world)
    assert [*found] == [
        ("preference", ALL_OF_IT),
        ("preference", "algorithm.beta"),
        ("rl", ALL_OF_IT),
        ("rl", "algorithm.surrogate"),
    ]
    assert [each.acts for each in found.values()] == [True, True, False, False]
    assert found["preference", "algorithm.beta"].place == "preference.algorithm.beta"


@pytest.mark.slow
def test_a_method_that_does_nothing_as_a_whole_ends_the_command_with_1(tmp_path, monkeypatch):
    grpo = {"algorithm": {"preset": "grpo"}}
    half = method("half", preference={"algorithm": {"beta": 0.5}}, rl=NO_CLIP)
    project(
        tmp_path,
        method("idle", rl=NO_CLIP),
        method("stored", preference={"algorithm": {"beta": 0.5}}, rl=STORED),
        half,
        method("whole", preference={"algorithm": {"beta": 0.5}}, rl=grpo),
        method("beside", curate={"order": "mixed"}),
    )
    monkeypatch.chdir(tmp_path)
    names = ["idle", "stored", "half", "whole", "beside"]
    said = CliRunner().invoke(cli, ["method", "check", *names])
    assert said.exit_code == 1
    # Elsewhere than on a terminal each method is told as its turn comes, beside the table.
    assert said.stderr.splitlines()[:3] == [
        "running: a tiny policy and its problems",
        "running: idle (1 of 5)",
        "running: stored (2 of 5)",
    ]
    assert "running" not in said.stdout
    rows = [" ".join(line.split()) for line in said.stdout.splitlines()]
    assert rows[0] == "method set back to its default how far the result moves"
    assert rows[1] == "idle rl: all of it 0.0% of training does nothing"
    told = " ".join(said.stdout.split())
    assert "% of training: largest difference of a weight between the two models" in told
    # Nothing was evaluated or diagnosed.
    assert "% of figures" not in told
    assert sum(line.endswith("  does nothing") for line in said.stdout.splitlines()) == 4
    assert "3 methods; 4 of 10 switches do nothing" in said.output
    assert "what they set does nothing: idle, half" in said.output
    # Of what was not looked at nothing is known: it neither passed nor failed.
    (stored,) = [line for line in said.stdout.splitlines() if line.startswith("stored")]
    assert stored.endswith(
        "not looked at: rl.inputs.verdicts reads verdicts, and the tiny world has none"
    )
    (beside,) = [line for line in said.stdout.splitlines() if line.startswith("beside")]
    assert "nothing to switch off" in beside
    found = kept(tmp_path)
    assert {name: line["passed"] for name, line in found.items()} == {
        "idle": False,
        "half": False,
        "whole": True,
    }
    assert found["idle"]["says"] == "without it weights move 0% of the way"
    one, other = found["half"]["says"].split("; ")
    assert one.startswith("preference: without it weights move ")
    assert other == "rl: without it weights move 0% of the way"
