"""Simulated students: what a sampler does for a learner whose skill and problems are known."""

import math

import pytest

from posttrain.learning.curriculum.base import ProblemPool
from posttrain.learning.curriculum.registry import PROBLEM_SAMPLERS
from posttrain.learning.curriculum.students import PER_LEVEL, Student, StudentTask, course_of
from posttrain.learning.curriculum.uniform import Uniform


def course(kind, *, learnable=8, levels=8, **fields):
    part = PROBLEM_SAMPLERS.parts[kind](**fields)
    return course_of(part, levels=levels, learnable=learnable)


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


def test_a_sampler_that_plans_over_the_steps_is_told_how_many_there_are():
    class Planner(Uniform):
        def start(self, pool: ProblemPool):
            seen.append(pool.steps)
            return super().start(pool)

    seen = []
    course_of(Planner(), levels=2, steps=7)
    assert seen == [7]


def test_a_course_is_the_same_twice():
    assert course("bandit") == course("bandit")


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
    uniform, learned = course("uniform"), course(kind, **fields)
    assert sum(learned.frontier) > 1.15 * sum(uniform.frontier)
    assert learned.solve_rates[-1] > uniform.solve_rates[-1] + 0.03


def test_what_nobody_learns_is_left_alone():
    """Three of 12 levels can be learned: uniform draws waste three of four."""
    fields = {"levels": 12, "learnable": 3}
    uniform = course("uniform", **fields)
    for kind, own in {"bandit": {"temperature": 0.1}, "alp_gmm": {"window": 60, "most": 4}}.items():
        learned = course(kind, **fields, **own)
        late = [problem // PER_LEVEL for drawn in learned.drawn[20:60] for problem in drawn]
        assert sum(level < 3 for level in late) / len(late) > 0.35
        assert learned.solve_rates[-1] > uniform.solve_rates[-1]
