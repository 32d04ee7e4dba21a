"""Answers that begin before an earlier failure, with an engine that says what it is told to."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.score import Score
from posttrain.learning.rl.hints.base import HINT
from posttrain.learning.rl.producers.base import SamplingRound, Workbench
from posttrain.learning.rl.producers.before_failure import BeforeFailure
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from tests.scripted import FakeEngine

PROBLEMS = [Problem("s", f"{name}?", "right", 1, "exact") for name in "ab"]


class Letters:
    """A tokenizer of single bytes, whose end is 0."""

    eos_token_id = 0

    def encode(self, text, add_special_tokens=False):
        return list(text.encode())

    def decode(self, ids, skip_special_tokens=True):
        return bytes(each for each in ids if each).decode()


@pytest.fixture
def production():
    def of(says, **settings):
        engine = FakeEngine(Letters(), lambda prompt, index, seed: says(prompt, index))
        known = [Score(1.0, "correct"), Score(0.0, "wrong_answer")]
        rewarder = SimpleNamespace(
            known=lambda pairs: [known["right" not in text] for text, _ in pairs]
        )
        return BeforeFailure(**settings).start(Workbench(engine, rewarder, Letters()))

    return of


def drawn(made, step, problems=PROBLEMS):
    at = SamplingRound(step, SamplingParams(16, num_samples=2, seed=step), 0, step)
    prompts = [Prompt(each.id, tuple(each.prompt.encode())) for each in problems]
    return made.produce(problems, prompts, at)


def test_a_wrong_answer_is_gone_on_with_from_its_middle(production):
    """`wrong` and the end are six tokens, of which three are drawn anew, behind `wro`."""

    def says(prompt, index):
        told = bytes(prompt.token_ids).decode()
        return "-right" if told == "a?wro" else ["right", "wrong"][told == "a?"]

    made = production(says, share=1.0)
    first = drawn(made, 0)
    assert [row.text for group in first for row in group] == ["wrong"] * 2 + ["right"] * 2
    again, other = drawn(made, 1)
    assert [row.text for row in again] == ["wro-right"] * 2
    assert [dict(row.facts)[HINT] for row in again] == [0.5, 0.5]
    # What is gone on from is read, and bears no loss.
    assert bytes(again[0].token_ids[: again[0].spans[-1].begin]).decode() == "a?wro"
    assert [dict(row.facts)[HINT] for row in other] == [0.0, 0.0]


def test_an_answer_is_forgotten_after_its_times_and_the_oldest_gives_way(production):
    made = production(lambda prompt, index: "wrong", share=1.0, times=1, kept=2)
    drawn(made, 0)
    assert [each.replayed for each in made.failures] == [0, 0]
    drawn(made, 1)
    # Both began a group, and what came of it stands in their place: `wro` and 6 tokens, less 4.
    assert [(each.replayed, len(each.begun)) for each in made.failures] == [(0, 5), (0, 5)]
    kept = made.state_dict()
    other = production(lambda prompt, index: "wrong")
    other.load_state_dict(kept)
    assert other.state_dict() == kept


def test_by_a_chance_of_none_and_where_an_answer_is_too_short_nothing_is_given(production):
    made = production(lambda prompt, index: "wrong", share=0.0)
    drawn(made, 0)
    assert all(dict(row.facts)[HINT] == 0.0 for group in drawn(made, 1) for row in group)
    short = production(lambda prompt, index: "x", share=1.0)
    drawn(short, 0, [replace(PROBLEMS[0])])
    assert not short.failures
