import doctest
import json
from typing import Literal

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.rewards import score as scores
from posttrain.learning.rewards.extractors.marker import MarkerAnswer
from posttrain.learning.rewards.score import Score, final_answer, reference_answer
from posttrain.learning.rewards.verifiers import numeric
from posttrain.learning.rewards.verifiers.base import Verifier
from posttrain.learning.rewards.verifiers.registry import VERIFIERS
from posttrain.learning.rewards.verify import (
    VerifierCache,
    metadata_for,
    verifier_of,
    verify,
    verify_all,
)
from posttrain.stage.errors import UserError
from posttrain.stage.slots import Slot


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("#### 5", "5"),
        ("2 + 3 = 5\n#### 5\n", "5"),
        ("#### 4\nwait\n  ####   5  ", "5"),
        ("####5", "5"),
        ("#### a #### b", "a #### b"),
        ("the marker is #### 5", None),
        ("#### 5\n####", None),
        ("", None),
    ],
)
def test_the_answer_stands_on_the_last_marked_line(text, answer):
    assert final_answer(text) == answer


def test_a_worked_solution_may_be_the_reference():
    assert reference_answer("1 + 1 = 2\n#### 2") == "2"
    assert reference_answer(" plain ") == "plain"


def test_only_a_full_score_is_correct():
    assert Score(1.0, "correct").correct
    assert not Score(0.99, "wrong_answer").correct
    assert Score(None, "no_grade").correct is None


def test_the_verifier_is_looked_up_by_name():
    problem = Problem("sums", "2 + 3 =", "5", difficulty=1, verifier="exact")
    assert verify("#### 5", problem) == Score(1.0, "correct")


def test_an_unknown_verifier_is_one_sentence():
    problem = Problem("sums", "2 + 3 =", "5", difficulty=1, verifier="exakt")
    with pytest.raises(UserError, match="verifier 'exakt'.*did you mean 'exact'"):
        verify("#### 5", problem)


@pytest.mark.parametrize("module", [scores, numeric])
def test_the_examples_in_the_docstrings_hold(module):
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0


MARKED = [
    kind
    for kind, part in VERIFIERS.parts.items()
    if not part.NEEDS and isinstance(getattr(part.model_construct(), "answer", None), MarkerAnswer)
]


@pytest.mark.parametrize("name", MARKED)
def test_a_verifier_that_looks_for_the_marker_says_no_answer_where_there_is_none(name):
    problem = Problem("chain_sum", "2 + 3 =", "5", difficulty=1, verifier=name)
    assert verify("the answer is 5", problem) == Score(0.0, "no_answer")


class Starts(Verifier):
    """Pay for what the text starts with."""

    kind: Literal["starts"] = "starts"
    word: str
    seen: int = 0

    def verify(self, texts, problems):
        return [Score(float(text.startswith(self.word)), f"{len(texts)}") for text in texts]


@pytest.fixture
def starts(monkeypatch):
    slot = Slot("verifier", Verifier, {**VERIFIERS.parts, "starts": Starts})
    monkeypatch.setattr("posttrain.learning.rewards.verify.VERIFIERS", slot)

    def problem(number, **fields):
        metadata = metadata_for(Starts(**fields))
        return Problem("s", f"q{number}", "5", 1, "starts", metadata)

    return problem


def test_parameters_stand_in_the_metadata_under_the_kind(starts):
    problem = starts(1, word="so")
    assert json.loads(problem.metadata) == {"starts": {"word": "so", "seen": 0}}
    assert verifier_of(problem) == Starts(word="so")
    assert metadata_for(VERIFIERS.parts["exact"]()) == "{}"


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        ("{}", "of 's': Starts.word: a value is required here"),
        ('{"starts": {"wort": "a"}}', "of 's': Starts.wort: unknown key; did you mean 'word'?"),
    ],
)
def test_parameters_that_are_not_valid_are_named(starts, metadata, sentence):
    with pytest.raises(UserError) as error:
        verify("so", Problem("s", "q", "5", 1, "starts", metadata))
    assert str(error.value).endswith(sentence)


def test_equal_verifiers_see_all_their_answers_at_once(starts):
    """Three with one word, two with another, an exact one between: each batch says its size."""
    exact = Problem("sums", "2 + 3 =", "5", difficulty=1, verifier="exact")
    answers = [
        ("so", starts(1, word="so")),
        ("no", starts(2, word="no")),
        ("#### 5", exact),
        ("no", starts(3, word="so")),
        ("so", starts(4, word="so")),
        ("so", starts(5, word="no")),
    ]
    assert verify_all(answers) == [
        Score(1.0, "3"),
        Score(1.0, "2"),
        Score(1.0, "correct"),
        Score(0.0, "3"),
        Score(1.0, "3"),
        Score(0.0, "2"),
    ]


def test_an_answer_that_is_remembered_is_not_verified_again():
    asked = []

    def count(answers):
        asked.append(len(answers))
        return [Score(float(len(text)), "") for text, _ in answers]

    problem = Problem("s", "q", "5", 1, "exact")
    cache = VerifierCache(count)
    answers = [("a", problem), ("bb", problem), ("a", problem)]
    assert [score.value for score in cache(answers)] == [1.0, 2.0, 1.0]
    assert [score.value for score in cache([("bb", problem), ("ccc", problem)])] == [2.0, 3.0]
    assert asked == [2, 1]


def test_what_could_not_be_judged_is_asked_again():
    said = iter([Score(None, "lost"), Score(1.0, "correct")])
    cache = VerifierCache(lambda answers: [next(said) for _ in answers])
    answer = ("5", Problem("s", "q", "5", 1, "exact"))
    found = [cache([answer])[0].value for _ in range(3)]
    assert found == [None, 1.0, 1.0]


def test_a_cache_stays_within_its_bytes_and_forgets_what_was_not_used_for_longest():
    """An entry is its text and 400 bytes: of texts of 600, two fit into 2,000 bytes."""
    asked = []

    def remember(answers):
        asked.extend(text[0] for text, _ in answers)
        return [Score(0.0, text[0]) for text, _ in answers]

    problem = Problem("s", "q", "5", 1, "exact")
    cache = VerifierCache(remember, max_bytes=2000)
    a, b, c = ((name * 600, problem) for name in "abc")
    cache([a, b])
    cache([a])
    cache([c])
    assert len(cache) == 2
    cache([a, c])
    assert asked == ["a", "b", "c"]
    # More than fits is still scored, all of it.
    assert [score.reason for score in cache([a, b, c])] == ["a", "b", "c"]
    assert len(cache) == 2
