"""Contexts that fill: what is read again, what bears loss, and what all sequences share."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import pytest
import torch

from posttrain.learning.episodes.config import PlayConfig
from posttrain.learning.episodes.contexts.base import Crowded
from posttrain.learning.episodes.contexts.truncate import Truncate
from posttrain.learning.episodes.environments.base import POLICY, Ask, Environment, Situation, Told
from posttrain.learning.episodes.episode import Segment, Span
from posttrain.learning.episodes.play import play
from posttrain.learning.episodes.players.base import PlayBench
from posttrain.learning.models.logprobs import token_logprobs
from posttrain.learning.rl.drawn import of_episode
from posttrain.learning.rl.producers.episodes import Episodes
from posttrain.learning.rl.rollout import as_one, parted, places_of_wholes, wholes
from tests.scripted import FakeEngine

SEED = 3


class Reading(Environment):
    """Tell a number each turn, and pay for the last."""

    kind: Literal["reading"] = "reading"
    rounds: int = 3

    def start(self, problem, seed):
        return Situation({"turn": 0}, (Ask(POLICY),), key="0")

    def step(self, state, acts, seed):
        turn = state["turn"] + 1
        if turn == self.rounds:
            return Situation({"turn": turn}, earned={POLICY: 1.0})
        told = Told("user", f"{turn}")
        return Situation({"turn": turn}, (Ask(POLICY, (told,)),), key=str(turn))


def played(context, engine, tokenizer, problems, prompts, params, **settings):
    spec = {"environment": Reading(), "context": context, "most_turns": 9, **settings}
    config = PlayConfig.parse(spec, where="x")
    speakers = config.seated(PlayBench(engine, tokenizer)).speakers(params)
    return play(Reading(), problems, prompts, speakers, seed=SEED, most_turns=9)


def drawn_of(segment):
    return [segment.token_ids[span.begin : span.end] for span in segment.spans if span.drawn]


@pytest.fixture(params=["truncate", "summarize"])
def context(request, prompts):
    # So that no second turn fits behind the first.
    most = max(len(prompt.token_ids) for prompt in prompts)
    return {"kind": request.param, "at_tokens": most + 7}


@pytest.fixture
def episodes(context, engine, tokenizer, problems, prompts, params):
    groups = played(context, engine, tokenizer, problems, prompts, params)
    assert groups == played(context, engine, tokenizer, problems, prompts, params)
    return groups


def test_an_episode_goes_on_in_further_sequences(episodes, context, tokenizer, prompts):
    several = 0
    for prompt, group in zip(prompts, episodes, strict=True):
        for episode in group:
            segments = episode.of(POLICY)
            several += len(segments) > 1
            said = [text for segment in segments for text in segment.said]
            assert said == [act.text for (act,) in episode.log]
            for segment in segments:
                assert segment.token_ids[: len(prompt.token_ids) - 1] == prompt.token_ids[:-1] or (
                    context["kind"] == "summarize"
                )
                ends = [span.end for span in segment.spans]
                assert [span.begin for span in segment.spans] == [0, *ends[:-1]]
                assert ends[-1] == len(segment.token_ids)
                assert segment.spans[-1].drawn
                assert len(segment.logprobs) == sum(map(len, drawn_of(segment)))
            summed = context["kind"] == "summarize"
            assert [segment.summed_up for segment in segments[:-1]] == [summed] * (
                len(segments) - 1
            )
            if summed:
                for before, after in zip(segments, segments[1:], strict=False):
                    summary = before.texts[-1].strip()
                    read = tokenizer.decode(after.token_ids[: after.spans[0].end])
                    assert not summary.isascii() or summary in read
    assert several > 3


def test_the_trainer_finds_the_log_probabilities_of_every_sequence(episodes, model):
    for group in episodes:
        for episode in group:
            for segment in episode.of(POLICY):
                drawn = [s.drawn for s in segment.spans for _ in range(s.begin, s.end)]
                wanted = torch.tensor([drawn])
                with torch.no_grad():
                    found = token_logprobs(
                        model, torch.tensor([segment.token_ids]), wanted_BT=wanted
                    ).logprobs_BT[wanted]
                torch.testing.assert_close(found, torch.tensor(segment.logprobs), atol=1e-5, rtol=0)


def test_sequences_of_an_episode_are_one_rollout_for_reward_and_credit(episodes, problems):
    group = [
        row
        for episode in episodes[0]
        for row in of_episode(episode, problems[0], group=2, version=0)
    ]
    assert {row.segment for row in group} >= {0, 1}
    together = wholes(group)
    assert [each.episode for each in together] == [episode.id for episode in episodes[0]]
    places_of = zip(episodes[0], together, places_of_wholes(group), strict=True)
    for episode, whole, places in places_of:
        rows = [group[place] for place in places]
        assert whole.num_drawn == sum(row.num_drawn for row in rows)
        assert sum(whole.drawn) == whole.num_drawn
        # In order: the drawn tokens of the whole are those of its rows.
        ids = [i for i, own in zip(whole.token_ids, whole.drawn, strict=True) if own]
        assert ids == [
            i for row in rows for i, own in zip(row.token_ids, row.drawn, strict=True) if own
        ]
        assert parted(tuple(range(whole.num_drawn)), rows)[-1][-1] == whole.num_drawn - 1
        assert sum(earned for earned, _ in whole.turns) == 1.0
        assert len(whole.turns) == len(whole.drawn_by_turn)
        # By a key of its own a summary is compared with summaries from the same situation alone.
        keys = [key for _, key in whole.turns]
        summed = sum(each.summed_up for each in episode.of(POLICY))
        assert sum(key.startswith("~") for key in keys) == summed
        assert [key for key in keys if not key.startswith("~")] == ["0", "1", "2"]
        assert all(key[1:] == after for key, after in pairwise(keys) if key.startswith("~"))
        assert as_one(rows[:1]) is rows[0]


def test_what_is_forgotten_stays_forgotten(tokenizer, problems, prompts, params):
    """Ten turns of two letters: the prompt and the last turn, however often it was cut."""
    engine = FakeEngine(tokenizer, lambda prompt, index, seed: "ab")
    most = max(len(prompt.token_ids) for prompt in prompts)
    context = {"kind": "truncate", "at_tokens": most + 2, "keep_turns": 1}
    config = PlayConfig.parse({"environment": Reading(rounds=10), "context": context}, where="x")
    speakers = config.seated(PlayBench(engine, tokenizer)).speakers(params)
    groups = play(Reading(rounds=10), problems, prompts, speakers, seed=SEED, most_turns=10)
    for prompt, group in zip(prompts, groups, strict=True):
        for episode in group:
            segments = episode.of(POLICY)
            lengths = [len(segment.token_ids) for segment in segments]
            # Each holds the prompt, a kept turn with what followed it, and the turn that it adds.
            assert len(segments) > 4
            assert len(set(lengths[2:-1])) <= 2
            for segment in segments:
                text = tokenizer.decode(segment.token_ids)
                assert text.count(problems[0].prompt[-3:]) <= 1 or len(prompt.token_ids) > 30


def test_a_turn_that_two_policies_drew_is_kept_whole():
    """`12` by policy 0 and `34` by policy 1 are one turn; `5` was told behind it, and `8` last."""
    spans = ((0, 1, 0, False), (1, 3, 0, True), (3, 5, 0, True), (5, 6, 1, False))
    before = Segment(
        POLICY,
        (9, 1, 2, 3, 4, 5),
        tuple(Span(*span) for span in spans),
        logprobs=(-0.5,) * 4,
        versions=(0, 1),
        texts=("1234",),
    )
    cut = Truncate(at_tokens=1, keep_turns=1)
    # There is nothing to leave out: the prompt, one turn, and what was read behind it.
    assert not cut.is_full(before)
    last = before._replace(
        token_ids=(*before.token_ids, 7, 7, 8),
        spans=(*before.spans, Span(6, 7, 1, drawn=True), Span(7, 8, 1, drawn=True))
        + (Span(8, 9, 2, drawn=False),),
        logprobs=(-0.5,) * 6,
        versions=(0, 1, 1, 2),
        texts=("1234", "77"),
    )
    assert cut.is_full(last)
    ((kept, fresh),) = cut.make_room([Crowded(None, (last,))], None)
    assert kept.token_ids == (9, 1, 2, 3, 4, 5, 7, 7)
    assert fresh.token_ids == (9, 7, 7, 8)


def test_a_summary_that_says_nothing_is_left_out(tokenizer, problems, prompts, params):
    engine = FakeEngine(tokenizer, lambda prompt, index, seed: "" if "~" in prompt.id else "ab")
    most = max(len(prompt.token_ids) for prompt in prompts)
    context = {"kind": "summarize", "at_tokens": most + 2}
    config = PlayConfig.parse({"environment": Reading(), "context": context}, where="x")
    speakers = config.seated(PlayBench(engine, tokenizer)).speakers(params)
    groups = play(Reading(), problems, prompts, speakers, seed=SEED, most_turns=9)
    summed = [segment for group in groups for each in group for segment in each.of(POLICY)]
    assert any(segment.summed_up for segment in summed)
    assert not any("..." in tokenizer.decode(segment.token_ids) for segment in summed)


class Posing(Reading):
    """Ask by two messages first, in place of the prompt."""

    kind: Literal["posing"] = "posing"

    def start(self, problem, seed):
        return (
            super()
            .start(problem, seed)
            ._replace(asks=(Ask(POLICY, (Told("user", "legs"), Told("user", "dog"))),))
        )


def test_all_that_was_read_first_is_read_again_behind_a_summary(
    tokenizer, problems, prompts, params
):
    engine = FakeEngine(tokenizer, lambda prompt, index, seed: "ab")
    config = PlayConfig.parse({"context": {"kind": "summarize", "at_tokens": 1}}, where="x")
    speakers = config.seated(PlayBench(engine, tokenizer)).speakers(params)
    groups = play(Posing(), problems[:1], prompts[:1], speakers, seed=SEED, most_turns=2)
    for episode in groups[0]:
        first, second = episode.of(POLICY)
        for segment in (first, second):
            read = tokenizer.decode(segment.token_ids[: segment.spans[0].end])
            assert "legs\ndog" in read


def test_what_is_summed_up_is_in_the_length_of_an_episode():
    def longest(context, **limits):
        said = {"environment": "guess", "most_turns": 3, "context": context, **limits}
        return Episodes.parse(said, where="x").longest(10)

    assert longest("whole") == longest({"kind": "truncate", "at_tokens": 8}) == 30
    # Three turns, and a summary before each but the first.
    summed = {"kind": "summarize", "at_tokens": 8}
    assert longest(summed) == 50
    # Who has drawn nine of twelve may begin once more.
    assert longest(summed, most_drawn=12) == 22


@dataclass
class Passes:
    """What `training_samples` asks where nothing needs a model."""

    config: object
    critic: None = None
    asked: list = field(default_factory=list)


def test_every_sequence_has_the_advantage_of_its_episode(episodes, problems):
    """Three episodes with rewards 1, 0, 0: less the mean of three, whatever they are cut into."""
    from posttrain.learning.rl.config import RlConfig
    from posttrain.learning.rl.learner import training_samples

    config = RlConfig(algorithm="dr_grpo", max_tokens=99)
    group = []
    for place, episode in enumerate(episodes[0]):
        rows = of_episode(episode, problems[0], group=0, version=0)
        group += [row._replace(reward=float(place == 0), trained=True) for row in rows]
    (samples,) = training_samples([group], Passes(config), step=0)
    assert len(samples) == len(group) > 3
    for row, sample in zip(group, samples, strict=True):
        assert sample.token_ids == row.token_ids
        assert sample.advantages == pytest.approx((2 / 3 if row.reward else -1 / 3,))


def test_a_role_begins_no_turn_beyond_its_tokens(engine, tokenizer, problems, prompts, params):
    whole = played("whole", engine, tokenizer, problems, prompts, params)
    assert all(len(episode.log) == 3 for group in whole for episode in group)
    most = max(len(prompt.token_ids) for prompt in prompts) + 10
    for limit in ({"most_context": most}, {"most_drawn": 6}):
        groups = played("whole", engine, tokenizer, problems, prompts, params, **limit)
        for group in groups:
            for episode in group:
                (segment,) = episode.of(POLICY)
                assert episode.end == "tokens"
                if "most_drawn" in limit:
                    last = segment.spans[-1]
                    assert len(segment.logprobs) - (last.end - last.begin) < 6
                    assert len(segment.logprobs) >= 6
                else:
                    assert 0 < len(episode.log) < 3
                    assert segment.spans[-1].begin < most
