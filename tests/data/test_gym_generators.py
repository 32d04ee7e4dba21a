"""Every generator of the reasoning-gym library is a source: its problems can be told and scored."""

from pathlib import Path

import pytest
from reasoning_gym.factory import DATASETS

from posttrain.data.gym_generators import SEVERAL_LINES, STATES_NO_ANSWER
from posttrain.data.sources.base import SourceRequest
from posttrain.data.sources.reasoning_gym import ReasoningGymSource
from posttrain.data.teachers.base import TeacherRequest
from posttrain.data.teachers.programs import ProgramTeacher
from posttrain.learning.rewards.score import final_answer
from posttrain.learning.rewards.verify import metadata_for, verify_all

# A mixture of other generators is none of its own.
NAMES = sorted(DATASETS.keys() - {"composite"})


def solutions_of(name, count):
    source = ReasoningGymSource(name=name)
    source.check()
    request = SourceRequest(
        seed=1,
        num_problems=count,
        num_heldout=1,
        heldout_fraction=0.1,
        scratch=Path(),
        sides={},
        path=None,
        answer_of=lambda text: final_answer(text) or text,
        metadata_of=metadata_for,
    )
    rows = source.read(request)
    teacher = ProgramTeacher(error_rate=0.0, without_program="answer")
    asked = TeacherRequest(per_problem=1, seed=1, report=lambda _: None)
    return rows.train, list(teacher.solve(rows.train, asked))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_what_a_generator_states_is_right_where_it_stands_as_an_answer(name):
    problems, solutions = solutions_of(name, 3)
    assert problems
    assert (
        (name in STATES_NO_ANSWER) == (not solutions) == all(p.answer == "None" for p in problems)
    )
    if name in SEVERAL_LINES:
        assert any("\n" in problem.answer for problem in problems)
    else:
        assert not any("\n" in problem.answer for problem in problems)
    scores = verify_all([(solution.text, solution.problem) for solution in solutions])
    assert all(score.correct for score in scores), [score.reason for score in scores]
