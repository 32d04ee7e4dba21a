"""What an evaluation says before its figures, on tallies written by hand."""

import math
from types import SimpleNamespace

import pytest
import torch

from posttrain.data.schemas import Problem
from posttrain.learning.episodes.figures import figures_of
from posttrain.learning.rewards.score import CORRECT, WRONG_ANSWER
from posttrain.learning.rollouts.engines.base import FinishReason
from tasks.evaluate.collapse import effective_number, warnings_of
from tasks.evaluate.summary import parent_of
from tasks.evaluate.tally import Tally


def tally_of(name, answers, *, length=10, cut=0, digest="", ancestors=(), verifier="exact"):
    """Ten problems whose answers are 0 to 9, with so many samples each as `answers` has columns."""
    problems = [Problem("sums", f"{n} =", str(n), 1, verifier) for n in range(10)]
    samples = [
        tuple(
            SimpleNamespace(
                problem=problem,
                sample=SimpleNamespace(
                    text=f"#### {answer}",
                    token_ids=[0] * length,
                    played=None,
                    finish_reason=FinishReason.LENGTH if place < cut else FinishReason.STOP,
                ),
                score=CORRECT if str(answer) == problem.answer else WRONG_ANSWER,
            )
            for answer in given
        )
        for place, (problem, given) in enumerate(zip(problems, answers, strict=True))
    ]
    correct = [[float(made.score.correct) for made in group] for group in samples]
    return Tally(
        name,
        digest,
        tuple(problems),
        tuple(samples),
        torch.tensor(correct, dtype=torch.float64),
        None,
        figures_of([made for group in samples for made in group]),
        ancestors,
    )


RIGHT = [[n] * 4 for n in range(10)]
GUESSED = [[1, 1, 1, 2] for _ in range(10)]


def test_the_effective_number_by_hand():
    assert effective_number(["a"] * 7) == 1.0
    assert effective_number(["a", "b", "c", "d"]) == pytest.approx(4.0)
    # Entropy of 3/4, 1/4.
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert effective_number(["a", "a", "a", "b"]) == pytest.approx(math.exp(entropy))


def test_a_policy_like_its_parent_is_not_called_out():
    assert warnings_of(tally_of("rl", RIGHT), tally_of("sft", RIGHT)) == ()
    assert warnings_of(tally_of("base", RIGHT), None) == ()


def test_one_that_guesses_is_named_with_its_answer():
    found = warnings_of(tally_of("rl", GUESSED), tally_of("sft", RIGHT))
    assert found[0] == (
        "rl seems to guess at sums: 75% of its answers are '1'; they vary as 1.8 equally frequent"
        " ones would, and 10.0 would be usual; RL guesses less with algorithm maxrl and"
        " draw.most_of_one_answer 0.2"
    )
    # It solves two of ten problems where its parent solved all: 1 -> 0.2 in four tries.
    assert found[1] == "rl solves fewer problems in 4 tries than sft: 20.0% against 100.0%"


def test_moves_of_episodes_are_no_answers_that_could_be_guessed():
    played = {"verifier": "played"}
    child, parent = tally_of("rl", GUESSED, **played), tally_of("sft", GUESSED, **played)
    assert warnings_of(child, parent) == ()
    assert warnings_of(child, None) == ()


def test_few_answers_are_no_guessing_where_the_parent_had_as_few():
    child, parent = tally_of("rl", GUESSED), tally_of("sft", GUESSED)
    assert warnings_of(child, parent) == ()


def test_short_and_cut_answers_are_called_out():
    short = tally_of("rl", RIGHT, length=4, cut=3)
    assert warnings_of(short, tally_of("sft", RIGHT, length=10)) == (
        "rl writes 4 tokens, sft 10",
        "rl: 30% of its samples met max_tokens before they ended",
    )


def test_episodes_cut_by_the_most_turns_are_not_laid_to_max_tokens():
    long = tally_of("rl", RIGHT, cut=5)
    for group in long.samples[:3]:
        for made in group:
            made.sample.played = SimpleNamespace(end="turns")
    assert warnings_of(long, None) == ("rl: 30% of its samples met most_turns before they ended",)
    assert warnings_of(tally_of("rl", RIGHT, cut=2), None) == ()


def test_the_parent_is_the_nearest_that_it_was_trained_from():
    base = tally_of("base", RIGHT, digest="b", ancestors=("random",))
    sft = tally_of("sft", RIGHT, digest="s", ancestors=("random", "b"))
    dpo = tally_of("dpo", RIGHT, digest="d", ancestors=("random", "b", "s"))
    rl = tally_of("rl", RIGHT, digest="r", ancestors=("random", "b", "s"))
    assert parent_of(base, []) is None
    assert parent_of(sft, [base]) is base
    assert parent_of(rl, [base, sft, dpo]) is sft
    # Not there itself: the one before it in its line.
    assert parent_of(rl, [base, dpo]) is base
    assert parent_of(rl, []) is None
    assert parent_of(rl, [dpo]) is None


def test_of_one_that_does_not_say_it_is_the_one_before():
    base, other = tally_of("base", RIGHT, digest="b"), tally_of("other", RIGHT, digest="o")
    assert parent_of(other, [base]) is base
