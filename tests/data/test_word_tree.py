"""Words of a tree: how many there are, how often letters stand in solutions, what is refused."""

import json
from collections import Counter
from pathlib import Path

import pytest

from posttrain.data.sources.base import SourceRequest
from posttrain.data.sources.word_tree import TREE_WORDS, WordTreeSource
from posttrain.stage.errors import UserError


def source(**settings):
    return WordTreeSource.parse(settings, where="source")


def read(problems=400, heldout=4, sides=frozenset(), **settings):
    request = SourceRequest(0, problems, heldout, 0.2, Path(), sides=sides)
    return source(**settings).read(request)


def test_problems_are_numbered_held_out_ones_first_and_say_their_words():
    rows = read(problems=3, heldout=2)
    assert [each.prompt for each in rows.heldout] == ["say 0", "say 1"]
    assert [each.prompt for each in rows.train] == ["say 2", "say 3", "say 4"]
    assert json.loads(rows.train[0].metadata)[TREE_WORDS] == {"letters": "abcdefgh", "length": 3}
    left = read(problems=3, heldout=2, sides={"say 0"})
    assert "say 0" not in {each.prompt for each in [*left.heldout, *left.train]}


def test_letters_stand_in_solutions_by_their_shares():
    """Of 1,200 letters 900 are expected to be a, with a deviation of 15."""
    rows = read(letters="ab", shares=[3.0, 1.0], verifier={"kind": "regex", "pattern": "^a"})
    assert len(rows.solutions) == 400
    assert {len(each.text) for each in rows.solutions} == {3}
    counts = Counter("".join(each.text for each in rows.solutions))
    assert abs(counts["a"] - 900) < 75


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"letters": "aba"}, "one twice"),
        ({"length": 5}, "32768 words"),
        ({"length": 2}, "length make another tree; set verifier"),
        ({"shares": [1.0]}, "1 shares for 8 letters"),
        ({"prompt": "say"}, "needs {number}"),
    ],
)
def test_what_is_no_small_tree_is_refused(settings, complaint):
    with pytest.raises(UserError, match=complaint):
        source(**settings)
