"""Simulated students: what a sampler does for a learner whose skill and problems are known."""

import math

import polars as pl
import pytest

from posttrain.data.schemas import Problem, problems_table, with_row_ids
from posttrain.learning.curriculum.base import ProblemPool
from posttrain.learning.curriculum.registry import PROBLEM_SAMPLERS
from posttrain.learning.curriculum.start import start_sampler
from posttrain.learning.curriculum.students import Student, StudentTask, teach

STEPS = 80


def course_of(kind, *, learnable=8, levels=8, **fields):
    """Teach a student whose skill begins at level 0, on levels of which some nobody learns."""
    places = [(level, n) for level in range(levels) for n in range(20)]
    tasks = [StudentTask(float(level), "sums", learnable=level < learnable) for level, _ in places]
    made = [Problem("sums", f"{level} {n} =", "1", level, "exact") for level, n in places]
    table = with_row_ids(problems_table(made), ("source", "prompt", "answer", "verifier"))
    student = Student(rate=0.01)
    solved = [round(8 * student.chance(task)) for task in tasks]
    rates = pl.DataFrame(
        {"problem_id": table["id"], "solved": solved, "attempts": 8, "policy": "p"}
    )
    part = PROBLEM_SAMPLERS.parts[kind](**fields)
    stream = start_sampler(part, ProblemPool(table, rates, policy="p"), count=12)
    return teach(stream, tasks, student, steps=STEPS, per_step=12)


def test_a_student_solves_by_a_logistic_curve_and_learns_most_at_a_half():
    student = Student(rate=0.1, sharpness=2.0, forgets=0.05)
    easy, even = StudentTask(-1.0, "a"), StudentTask(0.0, "a")
    never = StudentTask(0.0, "a", learnable=False)
    assert student.chance(even) == 0.5
    assert student.chance(easy) == pytest.approx(1 / (1 + math.exp(-2)))
    assert student.chance(never) == 0.0
    p = student.chance(easy)
    student.practice([even, easy, never])
    assert student.skills["a"] == pytest.approx(0.1 + 0.1 * 4 * p * (1 - p))
    before = student.skills["a"]
    student.practice([StudentTask(0.0, "b")])
    assert student.skills == pytest.approx({"a": before - 0.05, "b": 0.1})


def test_a_course_is_the_same_twice():
    assert course_of("bandit") == course_of("bandit")


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("solve_rate", {}),
        ("bandit", {"temperature": 0.2}),
        ("bandit", {"temperature": 0.1, "paid_by": "progress"}),
        ("bandit", {"temperature": 0.2, "paid_by": "regret"}),
        ("alp_gmm", {"window": 60, "most": 4}),
        ("replayed_levels", {"regret": "advantage"}),
    ],
)
def test_a_sampler_that_learns_finds_the_frontier(kind, fields):
    """Of 8 levels a student is ever at one: more of its practice is there than of uniform draws."""
    uniform, learned = course_of("uniform"), course_of(kind, **fields)
    assert sum(learned.frontier) > 1.15 * sum(uniform.frontier)
    assert learned.solve_rates[-1] > uniform.solve_rates[-1] + 0.03


def test_what_nobody_learns_is_left_alone():
    """Three of 12 levels can be learned: uniform draws waste three of four."""
    fields = {"levels": 12, "learnable": 3}
    uniform = course_of("uniform", **fields)
    for kind, own in {"bandit": {"temperature": 0.1}, "alp_gmm": {"window": 60, "most": 4}}.items():
        course = course_of(kind, **fields, **own)
        late = [problem // 20 for drawn in course.drawn[20:60] for problem in drawn]
        assert sum(level < 3 for level in late) / len(late) > 0.35
        assert course.solve_rates[-1] > uniform.solve_rates[-1]
