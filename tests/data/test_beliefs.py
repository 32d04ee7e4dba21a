"""Stories in which somebody misses something."""

import re
from collections import Counter
from pathlib import Path

import pytest

from posttrain.data.sources.base import SourceRequest
from posttrain.data.sources.beliefs import BeliefSource, beliefs_of
from posttrain.stage.errors import UserError


def read(problems=120, heldout=10, seed=0, **settings):
    source = BeliefSource.parse(settings, where="source")
    return source.read(SourceRequest(seed, problems, heldout, heldout_fraction=0.2, scratch=Path()))


@pytest.mark.parametrize(
    ("story", "believed"),
    [
        # Ben is away when the ball goes into the bag, and does not look when he comes.
        ("ball in box, ben goes, ball in bag, ben comes", "box box box box"),
        ("ball in box, ben goes, ball in bag, ben comes, ball in tin", "box box box box tin"),
        ("ball in box, ann goes, ball in bag", "box box bag"),
    ],
)
def test_one_looks_where_one_saw_it_last(story, believed):
    assert beliefs_of("ben", story.split(", ")) == believed.split()


def test_stories_are_different_and_answers_follow_from_them():
    rows = read()
    both = [*rows.heldout, *rows.train]
    assert (len(rows.heldout), len({each.prompt for each in both})) == (10, 130)
    for problem in both:
        *lines, question = problem.prompt.split("\n")
        who = question.removesuffix(" looks in")
        assert problem.answer == beliefs_of(who, lines)[-1]
        assert 3 <= len(lines) <= 5
        there = {"ann", "ben", "cid"}
        for line in lines:
            subject, _, did = line.partition(" ")
            if did in ("goes", "comes"):
                assert (subject in there) == (did == "goes")
                there ^= {subject}
    assert read().train == rows.train != read(seed=1).train


def test_solutions_are_in_three_modes_and_as_often_wrong_as_is_said():
    rows = read(400, error_rate=0.25, bare_rate=0.2)
    stated = [re.search(r"<answer>(\w+)</answer>$", each.text) for each in rows.solutions]
    right = [
        found is not None and found[1] == each.problem.answer
        for found, each in zip(stated, rows.solutions, strict=True)
    ]
    begun = Counter(
        found[1] if (found := re.match(r"<(\w+)", each.text)) else "bare" for each in rows.solutions
    )
    # 800 fair draws: 160 bare, and 213 of each mode, less five deviations.
    assert {*begun} == {"answer", "social", "think", "bare"}
    assert begun["bare"] > 103
    assert min(begun[each] for each in ("answer", "social", "think")) > 153
    # Right are three quarters of what has a tag, 480 of 800.
    assert 410 < sum(right) < 550


@pytest.mark.slow
def test_too_many_stories_are_refused():
    with pytest.raises(UserError, match="has fewer than 5000 different stories of 2 events"):
        read(4990, events=2)
