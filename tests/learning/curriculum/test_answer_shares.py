"""One answer is not right for most of what a source gives: by hand, and as properties."""

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from posttrain.data.schemas import IDENTITY, Problem, problems_table, with_row_ids
from posttrain.learning.curriculum.base import ProblemPool, ProblemStream
from posttrain.learning.curriculum.start import AnswerShares, start_sampler
from posttrain.learning.curriculum.uniform import Uniform


class AsListed(ProblemStream):
    """Draws the problems as they stand."""

    def __init__(self, num_problems):
        self.num_problems = num_problems

    def draw(self, count, *, seed, step, without=()):
        return [n for n in range(self.num_problems) if n not in without][:count]


def drawn(answers, count, *, most, sources=None, without=()):
    stream = AnswerShares(
        AsListed(len(answers)), most=most, answers=answers, sources=sources or ["s"] * len(answers)
    )
    return list(stream.draw(count, seed=0, step=0, without=without))


def test_common_answers_wait_by_hand():
    """At most half of 1, 2, 3, ... problems, rounded up: 1, 1, 2, 2, 3."""
    answers = ["2", "2", "2", "1", "2", "3"]
    assert drawn(answers, 5, most=0.5) == [0, 3, 1, 5, 2]
    # At most a fifth: all different while there are others, then the one that was drawn least.
    assert drawn(answers, 6, most=0.2) == [0, 3, 5, 1, 2, 4]
    assert drawn(answers, 3, most=1.0) == [0, 1, 2]


def test_each_source_has_its_own_and_keeps_its_places():
    answers = ["2", "2", "2", "2", "5", "5"]
    sources = ["a", "b", "a", "b", "a", "b"]
    found = drawn(answers, 6, most=0.5, sources=sources)
    assert found == [0, 1, 4, 5, 2, 3]
    assert [sources[index] for index in found] == sources


def test_problems_without_an_answer_never_wait():
    assert drawn(["", "", "1", "1", ""], 5, most=0.2) == [0, 1, 2, 4, 3]


def test_what_a_step_has_drawn_already_is_left_out():
    assert drawn(["2", "2", "1"], 2, most=0.5, without=[0]) == [1, 2]


def pool(answers, sources):
    made = [
        Problem(source, f"{n} =", answer, 0, "exact")
        for n, (answer, source) in enumerate(zip(answers, sources, strict=True))
    ]
    return ProblemPool(with_row_ids(problems_table(made), IDENTITY["problems"]))


def test_the_answer_of_a_whole_solution_stands_behind_its_marker():
    answers = ["so\n#### 2", "thus\n#### 2", "3"]
    stream = start_sampler(Uniform(), pool(answers, ["a"] * 3), count=1, most_of_one_answer=0.5)
    assert stream.answers == ["2", "2", "3"]
    plain = start_sampler(Uniform(), pool(answers, ["a"] * 3), count=1)
    assert not isinstance(plain, AnswerShares)


@given(
    answers=st.lists(st.sampled_from("1223334444"), min_size=1, max_size=40),
    most=st.floats(0.05, 1.0),
)
def test_every_beginning_keeps_the_share_while_others_are_left(answers, most):
    order = drawn(answers, len(answers), most=most)
    assert sorted(order) == list(range(len(answers)))
    for num in range(1, len(order) + 1):
        counts = Counter(answers[index] for index in order[:num])
        (answer, count), *_ = counts.most_common(1)
        left = {answers[index] for index in order[num:]}
        # Only where all that is left has reached the limit may one pass it.
        if left - {each for each in counts if counts[each] >= math.ceil(most * num)}:
            assert count <= math.ceil(most * num), (answers, order, answer)
