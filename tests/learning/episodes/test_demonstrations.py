"""Episodes that scripts play for traces: side by side what they are alone, with what they read."""

from random import Random
from typing import ClassVar

from posttrain.data.sources.base import SourceRequest
from posttrain.data.sources.world import WorldSource
from posttrain.learning.episodes.posed import posed_problem
from posttrain.learning.episodes.worlds.guess import Guess

PLACES = range(5)


class Together(Guess):
    """Notes how many episodes it answers at once."""

    answered: ClassVar[list[int]] = []

    def step_all(self, turns):
        self.answered.append(len(turns))
        return super().step_all(turns)


def demonstrated(world, problems):
    draws = [Random(f"{place} of {problem.id}") for place, problem in enumerate(problems)]
    return world.demonstrate_all(problems, draws, error_rate=0.3)


def test_an_episode_in_company_is_what_it_is_alone():
    problems = [posed_problem(Guess(), seed) for seed in PLACES]
    side_by_side = demonstrated(Together(), problems)
    alone = demonstrated(Guess(), problems)
    assert side_by_side == alone
    # Five begin; who is done is asked no more.
    lengths = [sum(author == "assistant" for author, _ in each.said) for each in alone]
    assert len(set(lengths)) > 1
    assert Together.answered == [
        sum(length > turn for length in lengths) for turn in range(max(lengths))
    ]


def test_what_a_script_read_is_kept_with_its_trace(tmp_path):
    source = WorldSource.parse({"world": "facts", "demonstrations": 2}, where="s")
    request = SourceRequest(seed=1, num_problems=3, num_heldout=1, heldout_fraction=0.1,
                            scratch=tmp_path)  # fmt: skip
    solutions = source.read(request).solutions
    assert len(solutions) == 6
    for each in solutions:
        assert each.read
        assert {name.partition(":")[0] for name in each.read} == {each.problem.id}
    assert [each.problem.id for each in solutions[::2]] == [
        each.problem.id for each in solutions[1::2]
    ]
