import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.verifiers.token_f1 import TokenF1Verifier, token_f1


@pytest.mark.parametrize(
    ("answer", "reference", "f1"),
    [
        ("The Eiffel Tower!", "eiffel tower", 1.0),
        # {cat, sat} and {cat}: precision 1/2, recall 1, F1 2/3.
        ("the cat sat", "a cat", 2 / 3),
        # Repeated words count as often as both have them: 2 of 3 and 2 of 2.
        ("no no no", "no no", 4 / 5),
        ("cat", "dog", 0.0),
        # Nothing but an article is left of one: right only where nothing is left of both.
        ("the", "a", 1.0),
        ("the", "cat", 0.0),
        # A removed comma joins: SQuAD's rule takes punctuation out, and puts nothing there.
        ("1,000", "1000", 1.0),
    ],
)
def test_f1_by_hand(answer, reference, f1):
    assert token_f1(answer, reference) == pytest.approx(f1)


def score(answer, **fields):
    problem = Problem("quiz", "Who?", "Marie Curie", 1, "token_f1")
    return TokenF1Verifier(answer="whole", **fields).score(answer, problem)


def test_the_best_of_several_right_answers_counts():
    assert score("Curie").value == pytest.approx(2 / 3)
    assert score("Maria Sklodowska", also=("Maria Sklodowska",)).reason == "correct"
    assert score("  ").reason == "no_answer"


def test_a_partly_right_answer_may_be_accepted():
    assert score("Curie", accept=0.6).correct
    assert score("Curie", accept=0.7).correct is False
