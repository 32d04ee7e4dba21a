"""Export and import: the same bytes again from any database, and nothing from a damaged file."""

import io
import json
import math
from dataclasses import replace

import pytest

from posttrain.provenance.ledger import Composition, Recall, Release, Run, Verification, open_ledger
from posttrain.provenance.ledger.transfer import export_ledger, import_ledger
from posttrain.stage.errors import UserError


def exported(ledger):
    stream = io.StringIO()
    export_ledger(ledger, stream)
    return stream.getvalue()


def imported(ledger, text):
    return import_ledger(ledger, text.splitlines(keepends=True), where="file")


def fill(ledger, make):
    ledger.append_run(make.full_run(), process="elsewhere 1 x")
    ledger.append_run(Run("r1", "small", 1.0), process="elsewhere 2 x")
    ledger.record(make.full_stage_run(), *(make.stage_run(number) for number in range(1500)))
    tokenizer = make.artifact("tokenizer", "t1", type="tokenizer", path="data/policy#tokenizer")
    ledger.compositions.add(Composition(make.artifact("policy", "d3"), (tokenizer,)))
    ledger.annotations.release(Release("v1", 3.0, (make.artifact("policy", "d3"),), "c0ffee", "st"))
    ledger.annotations.recall(
        Recall("1", "d1", "bad", 4.0), Recall("2", "d1", "fine", 5.0, withdrawn=True)
    )
    ledger.annotations.verify(
        Verification("s1", "L0", True, 6.0, {"outputs": "3"}), Verification("s1", "L0", False, 7.0)
    )
    return ledger


@pytest.fixture
def filled(ledger, make):
    return fill(ledger, make)


@pytest.fixture(scope="module")
def whole(make, tmp_path_factory):
    """The lines of an export: the same from any database, as the round trip shows."""
    with open_ledger(tmp_path_factory.mktemp("whole") / "ledger.db") as ledger:
        return exported(fill(ledger, make)).splitlines()


def test_round_trip_is_byte_equal(filled, tmp_path):
    text = exported(filled)
    with open_ledger(tmp_path / "copy.db") as copy:
        assert imported(copy, text) == 2 + 1501 + 1 + 1 + 2 + 2
        assert exported(copy) == text
        assert list(copy.every_stage_run()) == list(filled.every_stage_run())
        assert copy.annotations.recalls() == filled.annotations.recalls() == []
        assert [each.holds for each in copy.annotations.verifications()] == [True, False]


def exported_with_a_part(folder, make, part):
    """The lines of a ledger in which a table has one part."""
    with open_ledger(folder / "old.db") as old:
        old.compositions.add(Composition(make.artifact("table", "d1"), (part,)))
        return exported(old)


def test_what_an_older_ledger_called_judges_are_verifiers(make, tmp_path):
    judge = make.artifact("judge", "j1", type="judge", path="judge:numeric")
    text = exported_with_a_part(tmp_path, make, judge)
    with open_ledger(tmp_path / "new.db") as new:
        assert imported(new, text) == 1
        (found,) = new.compositions.parts_of(["d1"])["d1"]
        assert (found.role, found.type, found.path) == ("verifier", "verifier", "verifier:numeric")
        assert imported(new, text) == 0


def test_what_a_project_itself_calls_judges_stays_so(make, tmp_path):
    judge = make.artifact("judge", "j1", type="judge", path="data/first/judge")
    text = exported_with_a_part(tmp_path, make, judge)
    with open_ledger(tmp_path / "new.db") as new:
        assert imported(new, text) == 1
        assert new.compositions.parts_of(["d1"]) == {"d1": (judge,)}
        assert exported(new) == text
        assert imported(new, text) == 0


def test_every_line_is_strict_json(ledger, make):
    metrics = {"nan": math.nan, "up": math.inf, "down": -math.inf, "fine": 0.5}
    ledger.record(make.stage_run(1, metrics=metrics))
    text = exported(ledger)

    def refuse(constant):
        raise AssertionError(constant)

    for line in text.splitlines():
        json.loads(line, parse_constant=refuse)
    with_copy = io.StringIO(text)
    assert imported(ledger, with_copy.getvalue()) == 0
    assert ledger.stage_run("s1").metrics["down"] == -math.inf
    assert math.isnan(ledger.stage_run("s1").metrics["nan"])


def test_importing_twice_adds_nothing_and_merging_keeps_both(filled, make, tmp_path):
    text = exported(filled)
    with open_ledger(tmp_path / "copy.db") as copy:
        copy.record(make.stage_run(99_999))
        assert imported(copy, text) == 1509
        assert imported(copy, text) == 0
        assert copy.succeeded("k99999").id == "s99999"


def test_a_run_that_has_ended_since_the_last_import_is_closed(filled, make, tmp_path):
    with open_ledger(tmp_path / "copy.db") as copy:
        imported(copy, exported(filled))
        assert copy.run("r1").ended is None
        filled.finish_run("r1", "succeeded", 9.0)
        assert imported(copy, exported(filled)) == 0
        assert copy.run("r1") == replace(filled.run("r1"), ended=9.0, status="succeeded")


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda lines: [*lines[:5], lines[5][:-10], *lines[6:]], "file line 6 is damaged"),
        (lambda lines: [*lines, '{"kind":"stage_run","id":"x"}'], "line 1511 is damaged"),
        (lambda lines: [*lines, '{"kind":"dream"}'], "line 1511 is of unknown kind 'dream'"),
        (lambda lines: [*lines, "[]"], "line 1511 is damaged"),
        (lambda lines: ['{"kind":"ledger","format":2}', *lines[1:]], "upgrade posttrain"),
        (lambda lines: lines[1:], "not an exported ledger"),
        (lambda _: [], "not an exported ledger"),
    ],
)
def test_a_damaged_file_changes_nothing(whole, tmp_path, spoil, complaint):
    lines = spoil(list(whole))
    with open_ledger(tmp_path / "copy.db") as copy:
        with pytest.raises(UserError, match=complaint):
            import_ledger(copy, lines, where="file")
        assert copy.runs() == []
        assert list(copy.every_stage_run()) == []
