"""Episodes: what is drawn depends on the episode alone, and is learned from as it was drawn."""

from dataclasses import replace
from typing import ClassVar, Literal

import pytest
import torch

from posttrain.learning.episodes import script
from posttrain.learning.episodes.environments.base import POLICY
from posttrain.learning.episodes.environments.single import Single
from posttrain.learning.episodes.play import Role, play, retrace
from posttrain.learning.models.logprobs import token_logprobs
from posttrain.learning.rl.drawn import as_groups, of_episode
from posttrain.learning.rollouts.engines.base import Prompt
from posttrain.stage.errors import UserError
from tests.learning.episodes.environments import (
    AT_ONCE,
    CLOSED,
    FIRST,
    OPENED,
    Absent,
    Broken,
    Counting,
    Fickle,
    Impolite,
    Opening,
    Stranger,
    Together,
)
from tests.scripted import FakeEngine

SEED = 5


@pytest.fixture(scope="module")
def played(engine, tokenizer, params, problems, prompts):
    roles = {POLICY: Role(engine, tokenizer, params)}
    return play(Counting(), problems, prompts, roles, seed=SEED, most_turns=4)


def everyone(played):
    return [episode for group in played for episode in group]


def test_equal_calls_give_equal_bits(played, engine, tokenizer, params, problems, prompts):
    roles = {POLICY: Role(engine, tokenizer, params)}
    again = play(Counting(), problems, prompts, roles, seed=SEED, most_turns=4)
    assert again == played
    assert len({episode.id for episode in everyone(played)}) == 15
    assert max(len(episode.log) for episode in everyone(played)) == 3


def test_what_is_said_in_a_round_is_answered_at_once(
    played, engine, tokenizer, params, problems, prompts
):
    AT_ONCE.clear()
    roles = {POLICY: Role(engine, tokenizer, params)}
    found = play(Together(), problems, prompts, roles, seed=SEED, most_turns=4)
    assert found == played
    turns = [len(episode.log) for episode in everyone(played)]
    assert [sum(each > turn for each in turns) for turn in range(max(turns))] == AT_ONCE


def test_a_problem_alone_draws_what_it_draws_in_company(
    played, engine, tokenizer, params, problems, prompts
):
    roles = {POLICY: Role(engine, tokenizer, params)}
    (alone,) = play(Counting(), problems[3:4], prompts[3:4], roles, seed=SEED, most_turns=4)
    for one, other in zip(alone, played[3], strict=True):
        assert (one.id, one.log, one.end) == (other.id, other.log, other.end)
        assert one.segments[0].token_ids == other.segments[0].token_ids
        torch.testing.assert_close(
            torch.tensor(one.segments[0].logprobs),
            torch.tensor(other.segments[0].logprobs),
            atol=1e-4,
            rtol=0,
        )


def test_what_was_said_alone_leads_to_the_same_situations(played, problems):
    for problem, group in zip(problems, played, strict=True):
        for episode in group:
            again = retrace(Counting(), problem, episode.id, episode.log, seed=SEED)
            assert tuple(again) == episode.situations
    # A group begins alike, and no two turns share a seed.
    states = [[e.situations[-1].state["seeds"] for e in group] for group in played]
    assert all(len({seeds[0] for seeds in group}) == 1 for group in states)
    later = [seed for group in states for seeds in group for seed in seeds[1:]]
    assert len(set(later)) == len(later)


def test_what_a_clock_has_a_say_in_is_not_played_again(problems):
    with pytest.raises(UserError, match="environment clocked: a clock or a network has a say"):
        next(retrace(Clocked(), problems[0], "x/0", (), seed=SEED))


class Clocked(Counting):
    """Not exact."""

    EXACT: ClassVar[bool] = False
    kind: Literal["clocked"] = "clocked"


def test_two_problems_share_no_turn_of_a_script(problems):
    """With the seed of one evaluation or source, as policies play."""
    ended = [
        script.play_script(Counting(), each, lambda *_: "5", seed=SEED, most_turns=4)
        for each in problems
    ]
    seeds = [seed for episode in ended for seed in episode.situations[-1].state["seeds"]]
    assert len({*seeds}) == len(seeds) == 20


def test_the_trainer_finds_the_log_probabilities_of_the_engine(played, model):
    """Over joined segments: what was read between is context, and bears none."""
    read = 0
    for episode in everyone(played):
        (segment,) = episode.segments
        drawn = [span.drawn for span in segment.spans for _ in range(span.begin, span.end)]
        assert len(drawn) == len(segment.token_ids)
        ids, wanted = torch.tensor([segment.token_ids]), torch.tensor([drawn])
        with torch.no_grad():
            found = token_logprobs(model, ids, wanted_BT=wanted).logprobs_BT[wanted]
        torch.testing.assert_close(found, torch.tensor(segment.logprobs), atol=1e-5, rtol=0)
        read += sum(not each for each in drawn)
    assert read > 200


def test_each_speaks_behind_what_it_read_itself_where_a_group_begins_unlike(
    engine, model, tokenizer, params, problems, prompts
):
    FIRST.clear()
    role = Role(engine, tokenizer, replace(params, num_samples=4))
    for group in play(Fickle(), problems, prompts, {POLICY: role}, seed=SEED, most_turns=2):
        first = [each.segments[0].token_ids[: each.segments[0].spans[0].end] for each in group]
        assert len({*first}) == 3
        assert first[0] == first[3]
        for episode in group:
            (segment,) = episode.segments
            drawn = [span.drawn for span in segment.spans for _ in range(span.begin, span.end)]
            wanted = torch.tensor([drawn])
            with torch.no_grad():
                found = token_logprobs(model, torch.tensor([segment.token_ids]), wanted_BT=wanted)
            told = torch.tensor(segment.logprobs)
            torch.testing.assert_close(found.logprobs_BT[wanted], told, atol=1e-5, rtol=0)
        assert group[0].log[0] != group[3].log[0]


def test_spans_tell_apart_what_was_drawn_and_read(played, prompts):
    for prompt, group in zip(prompts, played, strict=True):
        for episode in group:
            (segment,) = episode.segments
            ends = [span.end for span in segment.spans]
            assert [span.begin for span in segment.spans] == [0, *ends[:-1]]
            assert [span.drawn for span in segment.spans] == [False, True] * len(episode.log)
            assert [span.turn for span in segment.spans[::2]] == [*range(len(episode.log))]
            assert segment.token_ids[: ends[0]] == prompt.token_ids
            assert len(segment.versions) == len(segment.texts) == len(episode.log)
            assert segment.texts == tuple(act.text for (act,) in episode.log)


def test_single_turns_keep_the_bits_of_sampling(engine, tokenizer, params, problems, prompts):
    roles = {POLICY: Role(engine, tokenizer, params)}
    played = play(Single(), problems, prompts, roles, seed=params.seed, most_turns=1)
    plain = as_groups(engine.sample(prompts, params), problems, prompts)
    made = [
        [row for episode in group for row in of_episode(episode, problem, group=number, version=0)]
        for number, (problem, group) in enumerate(zip(problems, played, strict=True))
    ]
    assert made == plain


def scripted(tokenizer, texts, **options):
    """Says the texts turn by turn, whoever is asked."""

    def script(prompt, index, seed):  # noqa: ARG001 - what an engine is asked
        return texts[int(prompt.id.partition("@")[2] or 0)]

    return FakeEngine(tokenizer, script, **options)


@pytest.fixture
def play_script(tokenizer, params, problems, prompts):
    def run(environment, texts, *, most_turns=4, **options):
        role = Role(scripted(tokenizer, texts, **options), tokenizer, params)
        (group, *_) = play(
            environment, problems, prompts, {POLICY: role}, seed=SEED, most_turns=most_turns
        )
        return group[0]

    return run


def test_how_an_episode_ends_is_told_apart(play_script):
    assert play_script(Counting(rounds=1), ["5", "5"]).end == "over"
    assert play_script(Counting(rounds=9), ["5"] * 3, most_turns=3).end == "turns"
    assert play_script(Counting(rounds=0), ["2 + 3 = 5 2 + 3 = 5 2 + 3 = 5"]).end == "tokens"
    broken = play_script(Broken(), ["5", "4"])
    assert broken.end == "failed"
    assert len(broken.log) == 2


def test_an_episode_without_room_ends_with_what_was_said(play_script, problems, prompts):
    episode = play_script(Counting(), ["5", "5"], context_length=len(prompts[0].token_ids) + 8)
    (segment,) = episode.segments
    assert episode.end == "tokens"
    assert segment.texts == ("5",)
    # What it was told and could not answer any more is in no row.
    assert [span.drawn for span in segment.spans] == [False, True]
    assert segment.spans[-1].end == len(segment.token_ids)
    (cut,) = of_episode(episode, problems[0], group=0, version=0)
    assert cut.truncated


def test_what_was_opened_is_closed_once_whatever_happens(play_script):
    """Each episode has a start of its own, and one that cannot be closed keeps no other open."""
    OPENED.clear(), CLOSED.clear()
    with pytest.raises(OSError, match="box 1 is stuck"):
        play_script(Opening(rounds=99), ["5"])
    assert sorted(CLOSED) == OPENED == [*range(15)]
    OPENED.clear(), CLOSED.clear()
    with pytest.raises((RuntimeError, OSError)):
        play_script(Opening(rounds=7), ["5"])
    assert sorted(CLOSED) == [*range(6)]


def test_one_that_broke_before_anybody_spoke_has_read_its_prompt(play_script, prompts, problems):
    episode = play_script(Absent(always=True), ["5"])
    assert (episode.end, episode.log) == ("failed", ())
    (rollout,) = of_episode(episode, problems[0], group=0, version=7)
    assert (rollout.token_ids, rollout.num_drawn) == (prompts[0].token_ids, 0)
    assert (rollout.policy_version, rollout.text) == (7, "")


def test_what_no_environment_may_do_is_refused(play_script, problems, tokenizer, params):
    with pytest.raises(UserError, match="asked policy again and told it nothing"):
        play_script(Impolite(), ["5", "5"])
    with pytest.raises(
        UserError, match="asks judge, and there is only policy, and has no script for it"
    ):
        play_script(Stranger(), ["5", "5"])
    role = Role(scripted(tokenizer, ["5"]), tokenizer, params)
    with pytest.raises(UserError, match="'p' has no tokens"):
        play(Single(), problems[:1], [Prompt("p", ())], {POLICY: role}, seed=0, most_turns=1)
