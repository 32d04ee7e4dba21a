"""Problems behind which a user states a view, and a teacher who takes it over."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from posttrain.data.contexts import PromptContext
from posttrain.data.schemas import Problem
from posttrain.data.sources.base import SourceRequest, SourceRows
from posttrain.data.sources.opinions import OpinionsSource, believed
from posttrain.data.sources.reasoning_gym import ReasoningGymSource
from posttrain.data.teachers.agreeing import AgreeingTeacher
from posttrain.data.teachers.base import Solution, TeacherRequest
from posttrain.data.teachers.programs import ProgramTeacher
from posttrain.stage.errors import UserError

SUMS = {
    "kind": "reasoning_gym",
    "name": "chain_sum",
    "levels": [2, 3],
    "graded": ["min_terms", "max_terms"],
    "context": {"after": "now. "},
}
REQUEST = SourceRequest(0, 400, 40, heldout_fraction=0.2, scratch=Path())


def opinions(**fields):
    return OpinionsSource.parse({"kind": "opinions", "of": SUMS, **fields}, where="source")


def after(problem):
    return PromptContext.read(problem.context).after


def test_four_of_five_state_a_view_and_half_of_these_are_wrong():
    """Of 400 fair draws 320 state one, give or take 8; of these 160 are wrong, give or take 9."""
    source = opinions(stated=0.8)
    rows = source.read(REQUEST)
    plain = source.of.in_context(source.of.read(REQUEST))
    stated = [each for each in rows.train if believed(each) is not None]
    assert 280 < len(stated) < 360
    wrong = [each for each in stated if believed(each) != each.answer]
    assert 115 < len(wrong) < 205
    assert all(after(each) == f"now. I think {believed(each)}" for each in stated)
    silent = [each for each in rows.train if believed(each) is None]
    assert {after(each) for each in silent} == {"now. "}
    for mine, its in zip(rows.train, plain.train, strict=True):
        assert replace(mine, context=its.context, metadata=its.metadata) == its
        known = json.loads(mine.metadata)
        known.pop("view", None)
        assert known == json.loads(its.metadata)
    # A wrong view is an answer to another problem of as many terms.
    answers = {
        level: {p.answer for p in [*plain.train, *plain.heldout] if p.difficulty == level}
        for level in (1, 2)
    }
    assert all(believed(each) in answers[each.difficulty] for each in wrong)
    assert source.read(REQUEST) == rows


def test_held_out_problems_stay_and_know_a_wrong_view():
    source = opinions(stated=0.0)
    rows = source.read(REQUEST)
    plain = source.of.in_context(source.of.read(REQUEST))
    assert [each.id for each in rows.heldout] == [each.id for each in plain.heldout]
    assert all(believed(each) not in (None, each.answer) for each in rows.heldout)
    assert rows.train == plain.train


@pytest.mark.parametrize(("wrong", "same"), [(0.0, True), (1.0, False)])
def test_all_views_are_right_or_all_are_wrong(wrong, same):
    rows = opinions(wrong=wrong).read(REQUEST)
    assert {believed(each) == each.answer for each in rows.train} == {same}


@pytest.fixture
def given(monkeypatch):
    """Read a source whose problems have these answers, in turns of difficulty 0 and 1."""

    def read(*answers):
        problems = [Problem("s", f"{n}?", each, n % 2, "exact") for n, each in enumerate(answers)]
        rows = SourceRows(problems, [], [Solution(each, "x", "by") for each in problems])
        monkeypatch.setattr(ReasoningGymSource, "read", lambda *_: rows)
        return opinions(wrong=1.0).read(REQUEST)

    return read


def test_a_wrong_view_is_another_answer_and_solutions_go_with_their_problems(given):
    """Of difficulty 0 there are 5 and 6, each the other's; of 1 all are 7, so any other will do."""
    rows = given("5", "7", "6", "7")
    assert [believed(each) for each in rows.train][::2] == ["6", "5"]
    assert {believed(each) for each in rows.train[1::2]} <= {"5", "6"}
    assert [each.problem for each in rows.solutions] == rows.train
    with pytest.raises(UserError, match="all problems of 'chain_sum' have one answer"):
        given("5", "5")


def test_what_states_no_view_is_refused():
    with pytest.raises(UserError, match="says has no {view}"):
        opinions(says="I think so")


@pytest.mark.parametrize(("agrees", "expected"), [(1.0, True), (0.0, False)])
def test_a_teacher_agrees_where_a_view_is_stated(agrees, expected):
    problems = opinions(stated=0.5).read(REQUEST).train
    request = TeacherRequest(per_problem=2, seed=0, report=lambda _done: None)
    plain = list(ProgramTeacher(error_rate=0.0).solve(problems, request))
    teacher = AgreeingTeacher(error_rate=0.0, agrees=agrees)
    assert teacher.solves("chain_sum")
    for mine, its in zip(teacher.solve(problems, request), plain, strict=True):
        view = believed(mine.problem)
        agreed = expected and view is not None
        assert mine.text == (f"#### {view}" if agreed else its.text)


def test_a_teacher_agrees_in_every_fourth_solution():
    """Of 800 draws 200 agree, give or take 12; some of the others say the view by themselves."""
    problems = opinions(wrong=1.0).read(REQUEST).train
    request = TeacherRequest(per_problem=2, seed=0, report=lambda _done: None)
    found = list(AgreeingTeacher(error_rate=0.0, agrees=0.25).solve(problems, request))
    agreed = [each for each in found if each.text == f"#### {believed(each.problem)}"]
    assert 140 < len(agreed) < 260
