"""What a method was checked for counts as long as it comes to the same; a system is y by it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from posttrain.methods.find import FoundMethod, every_method, find_method, methods_of
from posttrain.methods.method import Method
from posttrain.methods.systems import listed_systems, published_systems
from posttrain.pipeline.method_checks import (
    KeptCheck,
    checks_of,
    digest_of_method,
    keep_checks,
    kept_checks,
    made_check,
    passed_checks,
    stale_checks,
    standing_checks,
)
from posttrain.pipeline.recipe_schema import stages_of_flow
from posttrain.stage.errors import UserError
from posttrain.stage.slots import plugged

ROOT = Path(__file__).parents[2]
SAID = {"title": "Mine", "source": {"paper": "a note"}, "family": "pg", "says": "It says so."}


def write(root, name, **said):
    file = root / "methods" / "pg" / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"name": name, **SAID, **said}))


def algorithm(**said):
    return {"rl": {"algorithm": said}}


@pytest.fixture
def mine(tmp_path):
    """A method that changes another one's algorithm, in a project of its own."""
    write(tmp_path, "base", sets=algorithm(surrogate={"low": 0.1}))
    write(tmp_path, "mine", sets=algorithm(preset="base", surrogate={"high": 0.4}))
    with methods_of(tmp_path):
        yield find_method("mine")


def check(found, kind="switches", *, passed=True):
    digest = digest_of_method(found.method, stages_of_flow("flows.post_training", ROOT))
    return KeptCheck(found.method.name, kind, passed, "so it is", digest, "c0")


def passed(found):
    return passed_checks(standing_checks([found], ROOT))


def stale(found):
    return stale_checks(standing_checks([found], ROOT))


def test_a_check_counts_until_the_method_comes_to_something_else(tmp_path, mine):
    assert passed(mine) == frozenset()
    path = keep_checks(tmp_path, [check(mine)])
    assert path == tmp_path / "methods" / "checks.jsonl"
    assert (passed(mine), stale(mine)) == ({"mine"}, frozenset())
    assert checks_of(mine.method, ROOT) == {"switches": "passed, so it is"}
    # The story is no setting; the file of the method that it changes is another file.
    write(tmp_path, "mine", sets=mine.method.sets, note="Another story.")
    assert passed(find_method("mine")) == {"mine"}
    write(tmp_path, "base", sets=algorithm(surrogate={"low": 0.2}))
    assert (passed(moved := find_method("mine")), stale(moved)) == (frozenset(), {"mine"})
    # What the method comes to cannot be told at all.
    write(tmp_path, "base", sets=algorithm(surrogate={"lwo": 0.2}))
    assert (passed(moved := find_method("mine")), stale(moved)) == (frozenset(), {"mine"})


def test_a_check_is_said_to_be_stale_where_a_section_that_trains_nothing_is_added(tmp_path, mine):
    keep_checks(tmp_path, [check(mine), check(mine, "gradients", passed=False)])
    write(tmp_path, "mine", sets={**mine.method.sets, "evaluate": {"max_tokens": 16}})
    graded = find_method("mine")
    assert passed(graded) == frozenset()
    moved = "stale, as what it sets, or code that it reads, is another since; it"
    assert checks_of(graded.method, ROOT) == {
        "switches": f"{moved} passed, so it is; again: posttrain method check mine",
        "gradients": f"{moved} failed, so it is; again: posttrain method check --gradients mine",
    }
    keep_checks(tmp_path, [check(graded)])
    assert checks_of(graded.method, ROOT)["switches"] == "passed, so it is"


OWN_PART = """
from typing import Literal

from posttrain.learning.algorithms.token_weights.base import TokenWeight

SCALE = {scale}
OTHER = {other}

class Own(TokenWeight):
    # {remark}
    kind: Literal["checked_own"] = "checked_own"

    def of_update(self, logprobs_BT, *, old_logprobs_BT, batch):
        return logprobs_BT.exp() * SCALE

PARTS = {{"token_weight": {{"checked_own": Own}}}}
"""


def test_a_check_is_stale_where_the_code_of_a_plug_in_moved(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    said = {"scale": 1, "other": 1, "remark": "one"}
    file = tmp_path / "checked_part.py"
    file.write_text(OWN_PART.format(**said))
    write(tmp_path, "mine", sets=algorithm(token_weights={"checked_own": {}}))
    with methods_of(tmp_path), plugged(["checked_part"]):
        keep_checks(tmp_path, [made(tmp_path)])
        assert stands(tmp_path)
        # What the part does not read is another's affair, and so is a comment.
        file.write_text(OWN_PART.format(**said | {"other": 2, "remark": "two"}))
        assert stands(tmp_path)
        file.write_text(OWN_PART.format(**said | {"scale": 2}))
        assert not stands(tmp_path)
        assert checks_of(find_method("mine").method, tmp_path)["switches"].startswith(
            "stale, as what it sets, or code that it reads, is another since; it passed"
        )


def test_a_check_of_gradients_is_stale_where_its_formula_moved(tmp_path, mine):
    file = tmp_path / "methods" / "pg" / "formulas.py"
    own = "HALF = {half}\ndef mine(rows):\n    return HALF\n"
    formulas = own + "def other(rows):\n    return {other}\n"
    file.write_text(formulas.format(half=0.5, other=1))
    keep_checks(tmp_path, [made(tmp_path), made(tmp_path, "gradients")])
    assert stands(tmp_path)
    file.write_text(formulas.format(half=0.5, other=2))
    assert stands(tmp_path, "gradients")
    file.write_text(formulas.format(half=0.4, other=2))
    assert not stands(tmp_path, "gradients")
    # What its switches do is no affair of the formula.
    assert stands(tmp_path)


def made(root, kind="switches"):
    return made_check(find_method("mine"), kind, root, passed=True, says="so it is", commit="c0")


def stands(root, kind="switches"):
    return kind in standing_checks([find_method("mine")], root)["mine"]


def test_gradients_that_are_others_take_it_back_and_alone_are_not_enough(tmp_path, mine):
    keep_checks(tmp_path, [check(mine, "gradients")])
    assert passed(mine) == frozenset()
    keep_checks(tmp_path, [check(mine)])
    assert passed(mine) == {"mine"}
    keep_checks(tmp_path, [check(mine, "gradients", passed=False)])
    assert passed(mine) == frozenset()
    assert len((tmp_path / "methods" / "checks.jsonl").read_text().splitlines()) == 2


def test_the_same_found_again_changes_no_line(tmp_path, mine):
    path = keep_checks(tmp_path, [check(mine)])
    before = path.read_text()
    keep_checks(tmp_path, [replace(check(mine), commit="c1")])
    assert path.read_text() == before
    keep_checks(tmp_path, [replace(check(mine), commit="c1", says="otherwise")])
    assert kept_checks()["mine", "switches"].commit == "c1"


def test_a_line_that_is_no_check_is_one_sentence(tmp_path, mine):
    keep_checks(tmp_path, [check(mine)]).write_text('{"method": "mine"}\n')
    with pytest.raises(UserError, match=r"checks\.jsonl:1: this is no check; take the line out"):
        passed(mine)


def claimed(system):
    claim = {"name": "better", "says": "It is.", "arena": "sums", "against": {"plain": {}}}
    decided = [{"metric": "pass_at_1", "is": "higher", "margin": 0.1}]
    amounts = {"matched": "updates", "decide": decided, "seeds": 2, "minutes": 1}
    said = {"name": "mine", **SAID, "system": system, "claims": [claim | amounts]}
    return FoundMethod(Method.parse(said, where="mine"), Path("methods/pg/mine.yaml"))


def line_of(system, method, verdicts, passed):
    lines = listed_systems([method], verdicts, passed)
    return next(each for each in lines if each.system == system)


@pytest.mark.parametrize("sees", [False, True])
def test_a_system_runs_with_a_check_that_passed_and_its_claims_stand_beside_it(sees):
    here = (each for each in published_systems() if not each.lacks and each.kind == "A")
    system = next(each.name for each in here if each.sees == sees)
    whole = line_of(system, claimed(system), {}, {"mine"})
    assert (whole.state, whole.missing) == ("text" if sees else "y", "")
    assert whole.claims == "mine.better not run"
    refuted = line_of(system, claimed(system), {("mine", "better"): "refuted"}, {"mine"})
    assert (refuted.state, refuted.claims) == (whole.state, "mine.better refuted")
    unchecked = line_of(system, claimed(system), {("mine", "better"): "confirmed"}, set())
    assert unchecked.state == "p"
    assert unchecked.missing == "a check that it passed (posttrain method check mine)"


def test_a_system_that_lacks_a_block_is_not_whole_by_its_file():
    system = next(each.name for each in published_systems() if each.lacks)
    lacking = line_of(system, claimed(system), {("mine", "better"): "confirmed"}, {"mine"})
    assert lacking.state == "p"
    assert lacking.missing


@pytest.mark.parametrize(("kind", "state"), [("A", "p"), ("B", "y")])
def test_an_idea_is_enough_of_systems_that_gave_one_alone(kind, state):
    here = (each for each in published_systems() if not each.lacks and not each.sees)
    system = next(each.name for each in here if each.kind == kind)
    found = claimed(system)
    idea = FoundMethod(found.method.model_copy(update={"kind": "idea"}), Path("mine.yaml"))
    assert line_of(system, idea, {}, {"mine"}).state == state


def test_every_check_that_ships_is_of_the_methods_as_they_are_and_passed():
    ours = every_method()
    tasks = stages_of_flow("flows.post_training", ROOT)
    stale = {
        (name, kind)
        for (name, kind), kept in kept_checks().items()
        if kept.digest != digest_of_method(ours[name].method, tasks) or not kept.passed
    }
    assert stale == set()
