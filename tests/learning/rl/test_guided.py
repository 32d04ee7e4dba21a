"""Answers of two writers, with engines that say what they are told to."""

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.rl.producers.base import SamplingRound, Workbench
from posttrain.learning.rl.producers.guided import BY_GUIDE, Guided, GuidedProduction
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from tests.learning.rl.test_before_failure import Letters
from tests.scripted import FakeEngine

PROBLEMS = [Problem("s", f"{name}?", "right", 1, "exact") for name in "ab"]
SIZE = 40


@pytest.fixture
def drawn():
    def of(limit=16, **settings):
        def writer(letter):
            return FakeEngine(Letters(), lambda prompt, index, seed: letter * 5, policy_version=7)

        bench = Workbench(writer("p"), None, Letters())
        made = GuidedProduction(Guided(**settings), bench, writer("g"))
        at = SamplingRound(3, SamplingParams(limit, num_samples=SIZE, seed=5), 4, 3)
        prompts = [Prompt(each.id, tuple(each.prompt.encode())) for each in PROBLEMS]
        return made.produce(PROBLEMS, prompts, at)

    return of


def own(row):
    """What bears loss, as text."""
    span = row.spans[-1]
    return Letters().decode(row.token_ids[span.begin : span.end])


def test_the_guide_begins_with_one_to_all_but_one_of_its_tokens_and_the_policy_ends(drawn):
    """Five letters and the end: from one to five letters of the guide's are kept."""
    groups = drawn(begins=1.0, share=1.0)
    assert [[row.group for row in group] for group in groups] == [[4] * SIZE, [5] * SIZE]
    begun = {len(row.text) - 5 for group in groups for row in group}
    assert begun == {1, 2, 3, 4, 5}
    for group in groups:
        for row in group:
            kept = len(row.text) - 5
            assert row.text == "g" * kept + "ppppp"
            assert own(row) == "ppppp"
            assert len(row.logprobs) == 6  # with the end
            assert dict(row.facts)[BY_GUIDE] == kept / (kept + 6)


def test_the_policy_begins_and_the_guides_end_bears_no_loss_and_is_judged(drawn):
    groups = drawn(begins=0.0, share=1.0)
    assert {len(own(row)) for group in groups for row in group} == {1, 2, 3, 4, 5}
    for group in groups:
        for row in group:
            kept = len(own(row))
            assert row.text == "p" * kept + "ggggg"
            assert (row.end, row.versions, len(row.logprobs)) == ("over", (7,), kept)
            assert dict(row.facts)[BY_GUIDE] == 6 / (kept + 6)


def test_an_answer_keeps_to_the_limit_of_tokens(drawn):
    """Of at most six tokens the other writer has what is left."""
    for begins in (0.0, 1.0):
        rows = [row for group in drawn(limit=6, begins=begins, share=1.0) for row in group]
        assert {len(row.text) for row in rows} == {6}
        assert {row.end for row in rows} == {"tokens"}


def test_by_chance_the_policy_writes_alone(drawn):
    for begins in (0.0, 1.0):
        rows = [row for group in drawn(begins=begins, share=0.5) for row in group]
        alone = [row for row in rows if row.text == "ppppp"]
        # Of 80 a half, within four deviations of a fair coin's.
        assert 22 < len(alone) < 58
        assert all(dict(row.facts)[BY_GUIDE] == 0.0 for row in alone)
        assert all(own(row) == row.text for row in alone)


def test_which_way_round_is_a_coin_of_the_whole_round(drawn):
    first = {row.text[0] for group in drawn(begins=0.5, share=1.0) for row in group}
    assert len(first) == 1


def test_it_asks_for_its_guide_among_the_players():
    assert Guided(guide="teacher").players_asked == {"players.teacher": "guide"}
