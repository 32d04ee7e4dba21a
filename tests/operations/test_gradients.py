"""Every method of RL and of pairs: the stage's gradient is that of its paper's formula."""

import ast
import json
import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from posttrain.cli.main import cli
from posttrain.methods.find import SHIPPED, every_method, find_method
from posttrain.operations.gradients.check import (
    compared_sections,
    formula_of,
    method_gradients,
)
from posttrain.operations.gradients.compare import GradientErrors, apart, farthest, worst
from posttrain.operations.gradients.rollouts import drive_rl
from posttrain.operations.tiny_world import make_tiny_world
from posttrain.pipeline.recipe_schema import stages_of_flow
from posttrain.stage.errors import UserError

ROOT = Path(__file__).parents[2]
NOT_SHOWN = ("birdie",)
"""Learns from tables alone, which formulas are not given."""
METHODS = {
    section: sorted(
        name
        for name, each in every_method().items()
        if section in compared_sections(each) and name not in NOT_SHOWN
    )
    for section in ("rl", "preference")
}


def turn() -> int:
    """Which method's turn it is: one a commit."""
    asked = ["git", "rev-list", "--count", "HEAD"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else 0


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    tasks = stages_of_flow("flows.post_training", ROOT)
    return make_tiny_world(tmp_path_factory.mktemp("world"), tasks)


@pytest.fixture(scope="module")
def default_run(world, tmp_path_factory):
    """The default algorithm of RL, driven through two updates."""
    folder = tmp_path_factory.mktemp("default")
    return drive_rl({}, world.tasks["rl"], world.inputs["rl"], folder, dtype=torch.float64)


def method_file(root, name, **said):
    """A project with one method of its own."""
    file = root / "methods" / "pg" / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    (root / ".dvc").mkdir(exist_ok=True)
    whole = {"name": name, "title": name, "source": {"paper": "a note"}, "family": "pg"}
    file.write_text(json.dumps({**whole, "says": "Something.", **said}))
    return file.parent


@pytest.mark.parametrize("section", METHODS)
def test_the_gradient_of_the_method_whose_turn_it_is(world, section):
    names = METHODS[section]
    found = method_gradients(find_method(names[turn() % len(names)]), world)
    assert [each.agree for each in found] == [True], found


# All of them take two minutes; each commit asks one of each kind.
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for names in METHODS.values() for name in names])
def test_the_gradient_of_each_method(world, name):
    found = method_gradients(find_method(name), world)
    assert [each.agree for each in found] == [True], found


STORED = {"kind": "stored", "count": 1, "when": "always"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("switches", "weight"),
    [
        ({"against": "author"}, lambda p, old, author: p / author),
        (
            {"against": "both", "most": 1.2, "gamma": 0.5, "focus": 1.0},
            lambda p, old, author: (
                (1 - p.detach())
                * (2 * p / (old + author) / (2 * p / (old + author) + 0.5)).clamp(max=1.2)
            ),
        ),
    ],
)
def test_a_foreign_loss_is_told_what_an_author_gave_its_tokens(world, tmp_path, switches, weight):
    """Another run's rollouts join: by another policy's hand, and of no run of the method."""
    foreign = {"kind": "importance", **switches}
    algorithm = {"surrogate": "reinforce", "foreign": foreign}
    said = {"inputs": {"stored": "teacher.rollouts"}, "draw": {"additions": STORED}}
    said |= {"algorithm": algorithm}
    of_it = world.with_sections({"rl": said})
    inputs = of_it.inputs_of("rl", said)
    values = {name: each for name, each in said.items() if name != "inputs"}
    run = drive_rl(values, world.tasks["rl"], inputs, tmp_path, dtype=torch.float64)
    others = [row for row in run.rollouts if row["origin"] != "policy"]
    assert len(others) > 3

    def formula(rows, weight=weight):
        a = rows.centered()

        def loss(i):
            if rows.stored[i]["origin"] == "policy":
                return -a[i] * rows.log_p[i]
            of_row = (rows.log_p[i], rows.log_old[i], rows.log_engine[i])
            return -a[i] * weight(*(each.exp() for each in of_row))

        return rows.over_tokens(loss)

    assert run.errors(formula).agree, run.errors(formula)
    # The author is not the policy of before.
    assert not run.errors(lambda rows: formula(rows, lambda p, old, _: weight(p, old, old))).agree


def test_every_method_that_ships_has_a_formula(world):
    formulas = {
        name: formula_of(find_method(name), section, world)
        for section, names in METHODS.items()
        for name in names
    }
    assert [name for name, each in formulas.items() if each is None] == []
    # Its losses are of tables: the default's formula, whose algorithm it has, says nothing of them.
    assert formula_of(find_method("birdie"), "rl", world) is None
    assert not any(each.errors for each in method_gradients(find_method("birdie"), world))
    # BroRL is a schedule, the other a reward; their algorithm is the default's.
    others = {name: each.of for name, each in formulas.items() if each.of != name}
    assert others.get("brorl") == others.get("proxy_reward") == "default"


def test_formulas_share_no_line_with_the_product():
    pg = "posttrain.methods.pg"
    allowed = ("posttrain.methods.formula", f"{pg}.formulas", f"{pg}.formulas_of_critics")
    files = [*SHIPPED.glob("*/formulas*.py"), SHIPPED / "formula.py"]
    assert len(files) > 2
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            assert not isinstance(node, ast.Import) or node.names[0].name in ("torch", "math")
            if isinstance(node, ast.ImportFrom) and node.module.startswith("posttrain"):
                assert node.module in allowed, file


@pytest.mark.slow
def test_the_formula_of_another_method_is_told_apart(world, default_run):
    """Of the same rollouts: another denominator alone."""
    run = default_run
    assert len(run.updates) == 2
    ours = formula_of(find_method("default"), "rl", world)
    assert run.errors(ours.loss).agree
    other = run.errors(lambda rows: ours.loss(rows) * (1 + 1e-4))
    assert not other.agree
    # As far as the factor is from 1, in parts of what the formula says.
    assert other.tokens == pytest.approx(1e-4, rel=1e-2)
    assert other.weights == pytest.approx(1e-4, rel=1e-2)


def test_the_farthest_token_is_named_with_its_row():
    rows = [("first", [7, 8]), ("second", [9, 10, 11])]
    found = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0])
    expected = torch.tensor([0.0, 1.0, 2.0, 3.5, 4.25], dtype=torch.float64)
    told = "second, token 2 of 3 (id 10): 3 and by the formula 3.5"
    assert farthest(found, expected, rows) == told
    assert farthest(found, found.double(), rows) == ""


def test_distances_of_gradients_that_are_0():
    zero, one = torch.zeros(2), torch.ones(2)
    assert apart(zero, zero) == 0.0
    assert apart(one, zero) == math.inf
    assert apart(zero, one) == pytest.approx(1.0)
    assert apart(1e-9 * one, zero) == 0.0, "what is left of a gradient of 0 is rounding"
    assert apart(1.5 * one, one) == pytest.approx(0.5)
    assert apart(one * math.nan, one) == apart(one, one * math.inf) == math.inf


def test_what_shows_nothing_does_not_agree(world, default_run):
    errors = GradientErrors(0.0, 0.0, torch.float64)
    assert errors.agree
    assert not GradientErrors(0.0, 0.0, torch.float64, "the formula's gradient is 0").agree
    assert not GradientErrors(2e-5, 0.0, torch.float64).agree
    assert not GradientErrors(0.0, 2e-5, torch.float64).agree
    assert GradientErrors(0.0, 2e-5, torch.float32).agree
    # One update that shows something is enough, and what it shows counts.
    nothing = GradientErrors(0.0, 0.0, torch.float64, "the formula's gradient is 0")
    assert worst([nothing, errors]).agree
    assert not worst([nothing, nothing]).agree
    assert not worst([nothing, GradientErrors(2e-5, 0.0, torch.float64)]).agree
    # In the first update every ratio is 1, which tells no clip from another.
    formula = formula_of(find_method("default"), "rl", world)
    run = replace(default_run, updates=default_run.updates[:1])
    assert run.errors(formula.loss).complaint == "no ratio is other than 1"


@pytest.mark.slow
def test_a_method_of_ones_own_brings_its_formula_beside_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    half = {"rl": {"algorithm": {"preset": "reinforce", "advantage": {"positive_weight": 0.5}}}}
    folder = method_file(tmp_path, "mine", sets=half)
    method_file(tmp_path, "bare", sets=half)
    method_file(tmp_path, "other", sets=half)
    method_file(tmp_path, "slip", sets=half)
    method_file(tmp_path, "beside", sets={"sft": {"steps": 3}})
    (folder / "formulas.py").write_text(
        "import torch\n"
        "def mine(rows, factor=0.5):\n"
        "    lost = [-factor * rows.reward[i] * rows.log_p[i].sum() for i in rows.chosen]\n"
        "    return torch.stack(lost).mean()\n"
        "def other(rows):\n"
        "    return mine(rows, factor=0.51)\n"
        "def slip(rows):\n"
        "    return rows.rewards[0]\n"
    )
    said = CliRunner().invoke(cli, ["method", "check", "--gradients", "mine", "bare", "beside"])
    assert said.exit_code == 0, said.output
    head, formats, mine, bare, beside, *_ = said.stdout.splitlines()
    assert head.split() == ["method", "log-probs", "weights", "log-probs", "weights"]
    assert formats.split() == ["(float64)", "(float64)", "(float32)", "(float32)"]
    assert "Each figure is how far the stage's gradient lies" in said.stdout
    assert len(mine.split()) == 5
    # Its algorithm is that of one with a formula.
    assert bare.endswith("formula of mine")
    assert "nothing to compare" in beside
    said = CliRunner().invoke(cli, ["method", "check", "--gradients", "other"])
    assert said.exit_code == 1
    assert re.search(r"another gradient: step \d+, group \d+, a rollout of", said.output)
    assert "not shown to have their paper's gradients: other" in said.output
    said = CliRunner().invoke(cli, ["method", "check", "--gradients", "slip"])
    assert isinstance(said.exception, UserError)
    assert re.search(
        r"formulas.py, line 8: the formula slip fails: AttributeError: .*no attribute 'rewards'",
        str(said.exception),
    )


# The sections one by one are compared above, and a formula of one's own is told apart.
@pytest.mark.slow
def test_each_section_of_a_method_has_a_formula_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sets = {"rl": {"algorithm": "reinforce"}, "preference": {"algorithm": {"beta": 0.3}}}
    folder = method_file(tmp_path, "both", sets=sets)
    method_file(tmp_path, "stored", sets={"rl": {"inputs": {"verdicts": "judge.verdicts"}}})
    # That of the pairs is another one: one section is enough.
    (folder / "formulas.py").write_text(
        "from posttrain.methods.pg.formulas import reinforce\n"
        "from posttrain.methods.pref.formulas import dpo\n"
        "both_rl = reinforce\n"
        "def both_preference(pairs):\n"
        "    return dpo(pairs, beta=0.31)\n"
    )
    said = CliRunner().invoke(cli, ["method", "check", "--gradients", "both", "stored"])
    assert said.exit_code == 1, said.output
    _, _, rl, preference, stored, *_ = said.stdout.splitlines()
    assert rl.startswith("both (rl)")
    assert len(rl.split()) == 6
    assert preference.startswith("both (preference)")
    assert re.search(r"another gradient: \w+ \d.*, token \d+ of \d+ \(id \d+\): ", preference)
    assert "not looked at: rl.inputs.verdicts reads verdicts" in stored
    assert "0 methods have the gradients of their formulas, 1 is not" in said.output
    assert "not shown to have their paper's gradients: both" in said.output
    (line,) = (tmp_path / "methods" / "checks.jsonl").read_text().splitlines()
    assert not json.loads(line)["passed"]
    rl, preference = json.loads(line)["says"].split("; ")
    assert rl.startswith("rl: log-probabilities within")
    assert preference.startswith("preference: log-probabilities within")


def test_a_method_without_a_formula_is_said_to_have_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = method_file(tmp_path, "bare", sets={"rl": {"algorithm": {"surrogate": {"low": 0.1}}}})
    said = CliRunner().invoke(cli, ["method", "check", "--gradients", "bare"])
    assert said.exit_code == 0, said.output
    assert "no formula: nothing was compared" in said.output
    assert "without a formula: bare" in " ".join(said.output.split())
    (folder / "formulas.py").write_text("import nothing_of_this_name\n")
    said = CliRunner().invoke(cli, ["method", "check", "--gradients", "bare"])
    assert isinstance(said.exception, UserError)
    assert "formulas.py: the formulas cannot be imported: No module" in str(said.exception)
