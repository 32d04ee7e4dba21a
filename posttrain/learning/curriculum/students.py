"""Simulated students: what a problem sampler does for a learner whose skill is known.

A tool for whoever writes a sampler: seconds tell whether it finds what can be learned, where a
model's training would take minutes and be noisy. docs/extending.md shows it at work.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import fmean, pstdev

from posttrain.learning.curriculum.base import (
    GroupResult,
    ProblemPool,
    ProblemSampler,
    ProblemStream,
)

PER_LEVEL = 20
"""Problems of each level of a course."""


@dataclass(frozen=True)
class StudentTask:
    """A problem as a simulated student meets it."""

    difficulty: float
    """The skill at which it is solved half of the time."""
    subject: str = ""
    """Skills of different subjects are apart."""
    learnable: bool = True
    """False for one that nobody ever solves, and that teaches nothing."""


@dataclass
class Student:
    """Solves by a logistic curve, and learns most from what it solves half of the time.

    P(solve) = sigmoid(sharpness (skill - difficulty)). A group of attempts raises the skill of its
    subject by rate 4 p (1 - p); skills that are not practiced on decay by `forgets` a step.
    """

    rate: float = 0.05
    sharpness: float = 2.0
    forgets: float = 0.0
    """Skill that each subject loses in a step in which nothing of it is practiced on."""
    begins: float = 0.0
    skills: dict[str, float] = field(default_factory=dict)

    def chance(self, task: StudentTask) -> float:
        """Probability to solve a task as the student is now."""
        if not task.learnable:
            return 0.0
        skill = self.skills.get(task.subject, self.begins)
        return 1.0 / (1.0 + math.exp(-self.sharpness * (skill - task.difficulty)))

    def practice(self, tasks: Sequence[StudentTask]) -> None:
        """Learn from the tasks of a step, all tried with the skill from before it."""
        gains: dict[str, float] = {}
        for task in tasks:
            p = self.chance(task)
            gain = self.rate * 4 * p * (1 - p) if task.learnable else 0.0
            gains[task.subject] = gains.get(task.subject, 0.0) + gain
        for subject in {*self.skills, *gains}:
            now = self.skills.get(subject, self.begins)
            self.skills[subject] = now + gains.get(subject, -self.forgets)


@dataclass(frozen=True)
class Course:
    """What came of a student that a sampler taught."""

    solve_rates: tuple[float, ...]
    """Mean chance to solve a learnable task, before the first step and after each, ``[S + 1]``."""
    frontier: tuple[float, ...]
    """Of the problems of each step the share that was neither solved by 4 of 5 attempts or more nor
    by 1 of 5 or fewer, ``[S]``."""
    drawn: tuple[tuple[int, ...], ...]
    """The problems of each step."""
    measured: tuple[Mapping[str, float], ...]
    """What the sampler measured after each step."""


def teach(
    stream: ProblemStream,
    tasks: Sequence[StudentTask],
    student: Student,
    *,
    steps: int,
    per_step: int = 16,
    group_size: int = 8,
    seed: int = 0,
) -> Course:
    """Let a sampler choose what a student practices on.

    Args:
        stream: A started sampler, over as many problems as there are tasks.
        tasks: Its problems, in the order of its pool.
        student: Is changed.
        steps: Steps of practice.
        per_step: Problems of a step.
        group_size: Attempts at each.
        seed: Of the draws, and of the attempts.

    Returns:
        How it went.

    """
    learnable = [task for task in tasks if task.learnable]
    rates, frontier, drawn, measured = [_mean(student, learnable)], [], [], []
    for step in range(steps):
        chosen = list(stream.draw(per_step, seed=seed, step=step))
        chances = [student.chance(tasks[problem]) for problem in chosen]
        chance = Random(f"student/{seed}/{step}")
        results = [
            _result(problem, [chance.random() < p for _ in range(group_size)])
            for problem, p in zip(chosen, chances, strict=True)
        ]
        student.practice([tasks[problem] for problem in chosen])
        stream.observe(results)
        rates.append(_mean(student, learnable))
        frontier.append(fmean(0.2 < p < 0.8 for p in chances))
        drawn.append(tuple(chosen))
        measured.append(stream.metrics())
    return Course(tuple(rates), tuple(frontier), tuple(drawn), tuple(measured))


def course_of(
    sampler: ProblemSampler,
    *,
    levels: int = 8,
    learnable: int | None = None,
    steps: int = 80,
    per_step: int = 12,
) -> Course:
    """Teach a student whose skill begins at level 0, on 20 problems of each of some levels.

    Their difficulties are their levels, 0 for the easiest, and solve rates of 8 attempts before the
    first step are connected.

    Args:
        sampler: Chooses the problems.
        levels: How many there are.
        learnable: So many of the easiest can be learned, and nobody ever solves the others; None
            for all.
        steps: Steps of practice; the sampler is told, as RL tells it.
        per_step: Problems of a step.

    Returns:
        How it went.

    """
    import polars as pl

    from posttrain.data.schemas import Problem, problems_table, with_row_ids
    from posttrain.learning.curriculum.start import start_sampler

    known = levels if learnable is None else learnable
    places = [(level, n) for level in range(levels) for n in range(PER_LEVEL)]
    tasks = [StudentTask(float(level), "sums", learnable=level < known) for level, _ in places]
    made = [Problem("sums", f"{level} {n} =", "1", level, "exact") for level, n in places]
    table = with_row_ids(problems_table(made), ("source", "prompt", "answer", "verifier"))
    student = Student(rate=0.01)
    solved = [round(8 * student.chance(task)) for task in tasks]
    rates = pl.DataFrame(
        {"problem_id": table["id"], "solved": solved, "attempts": 8, "policy": "student"}
    )
    pool = ProblemPool(table, rates, policy="student", steps=steps)
    stream = start_sampler(sampler, pool, count=per_step)
    return teach(stream, tasks, student, steps=steps, per_step=per_step)


def _mean(student: Student, tasks: Sequence[StudentTask]) -> float:
    return fmean(student.chance(task) for task in tasks)


def _result(problem: int, solved: Sequence[bool]) -> GroupResult:
    """What a sampler hears of a group whose rewards were standardized, as GRPO does."""
    rewards = [float(each) for each in solved]
    deviation = pstdev(rewards) or 1.0
    advantages = tuple((each - fmean(rewards)) / deviation for each in rewards)
    lengths = (1,) * len(rewards)
    return GroupResult(problem, tuple(rewards), tuple(solved), lengths, advantages)
