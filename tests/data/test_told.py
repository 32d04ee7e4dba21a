"""Problems of a source that are each told in one of several ways."""

from collections import Counter
from pathlib import Path

import pytest

from posttrain.data.contexts import PromptContext
from posttrain.data.sources.base import SourceRequest
from posttrain.data.sources.told import ToldSource
from posttrain.data.teachers.programs import ProgramTeacher
from posttrain.stage.errors import UserError

SUMS = {
    "kind": "reasoning_gym",
    "name": "chain_sum",
    "levels": [2, 3],
    "graded": ["min_terms", "max_terms"],
    "context": {"after": " now"},
}
REQUEST = SourceRequest(0, 300, 20, heldout_fraction=0.2, scratch=Path())


def told(*before):
    return told_of(SUMS, before)


def told_of(source, before=("Briefly: ",), **fields):
    """The source, with its problems told in one of these ways."""
    said = {"kind": "told", "of": source, "before": [*before], **fields}
    return ToldSource.parse(said, where="source")


def test_training_problems_are_told_and_held_out_ones_are_not():
    source = told("Briefly: ", "", "At length: ")
    source.check()
    rows = source.read(REQUEST)
    contexts = [PromptContext.read(each.context) for each in rows.train]
    counts = Counter(each.before for each in contexts)
    # 300 fair draws of a third each: 100, and 59 is five deviations away.
    assert {*counts} == {"Briefly: ", "", "At length: "}
    assert min(counts.values()) > 59
    assert all(each.after == " now" for each in contexts)
    plain = source.of.in_context(source.of.read(REQUEST))
    assert rows.heldout == plain.heldout
    assert [each.prompt for each in rows.train] == [each.prompt for each in plain.train]
    assert source.read(REQUEST).train == rows.train


def test_it_is_what_the_source_within_is():
    source = told("Briefly: ")
    assert (source.local_path(), source.fetched(), source.poses()) == (None, None, ())
    assert not source.only_heldout
    assert source.remark(ProgramTeacher()) == ""
    assert source.first_problems(REQUEST, 3) == []
    with pytest.raises(UserError, match="before"):
        told()


def test_it_has_the_name_of_the_source_within_and_no_other():
    assert told("Briefly: ").name == "chain_sum"
    with pytest.raises(UserError, match="name is 'other', but .* 'chain_sum'.*; leave name out"):
        told_of(SUMS, name="other")


def test_it_has_solutions_and_connects_where_the_source_within_does():
    teacher = ProgramTeacher()
    for solutions, remedy in ((2, ""), (0, "set solutions of science above 0")):
        source = told_of({"kind": "science", "solutions": solutions})
        assert source.without_solutions(teacher, None) == remedy
        assert source.reaches() == frozenset()
    fetched = told_of({"kind": "huggingface", "name": "far", "revision": "0" * 40})
    assert fetched.reaches() == {"hub"}
