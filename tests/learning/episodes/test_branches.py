"""Episodes that begin inside another one: what they share, what is theirs, how many there are."""

from dataclasses import replace
from random import Random
from typing import Literal

import pytest
import torch

from posttrain.learning.episodes.branches.base import Branching, Forks, Standing
from posttrain.learning.episodes.branches.entropy_rise import EntropyRise
from posttrain.learning.episodes.environments.base import POLICY
from posttrain.learning.episodes.episode import answered_as
from posttrain.learning.episodes.forking import first_entropies
from posttrain.learning.episodes.play import Role, play, retrace
from posttrain.learning.rl.drawn import of_episode
from posttrain.learning.rl.producers.episodes import Episodes
from posttrain.stage.errors import UserError
from tests.learning.episodes.environments import Counting

SEED = 5


class Always(Branching):
    """Begin one, and branch from each that goes on as long as there is room."""

    kind: Literal["always"] = "always"

    @property
    def tokens(self):
        return 0

    def begins(self, group_size):
        return 1

    def branches(self, standing, room, draw):
        return range(len(standing))


def played(engine, tokenizer, params, problems, prompts, branching=None, size=6):
    def entropies(segments, count):
        return first_entropies(engine.model, segments, count, temperature=1.0)

    forks = Forks(branching or Always(), entropies)
    role = Role(engine, tokenizer, replace(params, num_samples=size), forks=forks)
    return play(Counting(), problems, prompts, {POLICY: role}, seed=SEED, most_turns=4)


@pytest.fixture(scope="module")
def groups(engine, tokenizer, params, problems, prompts):
    return played(engine, tokenizer, params, problems, prompts)


def test_a_branch_shares_what_was_said_and_draws_the_rest_itself(groups, problems):
    for problem, group in zip(problems, groups, strict=True):
        by_id = {episode.id: episode for episode in group}
        assert len(by_id) == len(group) == 6
        branches = [episode for episode in group if "<" in episode.id]
        for episode in branches:
            turn = int(episode.id.split("<")[1].partition("@")[2])
            parent = by_id[answered_as(episode.id, turn - 1)]
            assert (episode.log[:turn], episode.situations[: turn + 1]) == (
                parent.log[:turn], parent.situations[: turn + 1]
            )  # fmt: skip
            (row,), (other,) = (
                of_episode(each, problem, group=0, version=0) for each in (episode, parent)
            )
            read = [span for span in row.spans if span.drawn and span.turn < turn][-1].end
            assert row.token_ids[:read] == other.token_ids[:read]
            assert row.logprobs[: row.shared] == other.logprobs[: row.shared]
            assert row.shared == sum(s.end - s.begin for s in row.spans[: 2 * turn] if s.drawn)
            assert row.num_drawn > row.shared > 0
        # By what was said, and the ids alone, all of them can be stood in again.
        for episode in group:
            again = retrace(Counting(), problem, episode.id, episode.log, seed=SEED)
            assert tuple(again) == episode.situations
    # One begins; behind its first answer there are two, then four, then as many as are wanted.
    # Of three turns each, so that a fifth begins afresh when these four are over.
    for group in groups:
        ids = [episode.id.rpartition("/")[2] for episode in group]
        assert ids == ["0", "1<0@1", "2<0@2", "3<1@2<0@1", "4", "5<4@1"]


def test_equal_calls_give_equal_bits_and_a_problem_alone_what_it_has_in_company(
    groups, engine, tokenizer, params, problems, prompts
):
    assert played(engine, tokenizer, params, problems, prompts) == groups
    (alone,) = played(engine, tokenizer, params, problems[3:4], prompts[3:4])
    assert [(each.id, each.log, each.end) for each in alone] == [
        (each.id, each.log, each.end) for each in groups[3]
    ]


def test_no_branch_draws_what_the_other_did(groups):
    """Of twenty turns of up to six random tokens, most differ."""
    pairs = ((0, 1, 1), (0, 2, 2), (1, 3, 2), (4, 5, 1))
    said = [
        group[one].log[turn] != group[other].log[turn]
        for group in groups
        for one, other, turn in pairs
    ]
    assert sum(said) >= 0.8 * len(said)


def standing(*sums):
    return Standing(0, len(sums), tuple((each / 2, each / 2) for each in sums))


def test_entropy_that_rose_makes_a_branch_likelier():
    part = EntropyRise(chance=0.5, weight=0.2)
    tries = 4000

    def share(*sums):
        draw = Random(0)
        return sum(len(part.branches([standing(*sums)], 1, draw)) for _ in range(tries)) / tries

    # 0.5 + 0.2 (H - H of the first turn), within four deviations of a share of 4000.
    for sums, chance in (((1.0,), 0.5), ((1.0, 5.0, 3.0), 0.9), ((2.0, 0.5), 0.2)):
        assert share(*sums) == pytest.approx(chance, abs=4 * (0.25 / tries) ** 0.5)
    assert share(0.0, 2.5) == 1.0
    assert share(3.0, 0.5) == 0.0


def test_there_are_no_more_branches_than_there_is_room():
    part = EntropyRise(chance=1.0, weight=0.0, most=2)
    three = [standing(1.0)] * 3
    assert part.branches(three, 5, Random(0)) == [0, 0, 1, 1, 2]
    assert part.branches(three, 1, Random(0)) == [0]
    assert [part.begins(size) for size in (16, 3, 1)] == [8, 2, 1]


def test_entropies_are_those_of_the_whole_distribution(engine, groups):
    segments = [episode.segments[0] for group in groups for episode in group][:7]
    segments = [segment for segment in segments if segment.spans[-1].drawn]
    found = first_entropies(engine.model, segments, 3, temperature=2.0)
    size = engine.model.config.vocab_size
    for segment, shares in zip(segments, found, strict=True):
        begin, end = (
            segment.spans[-1].begin,
            min(segment.spans[-1].end, segment.spans[-1].begin + 3),
        )
        with torch.no_grad():
            logits = engine.model(torch.tensor([segment.token_ids])).logits[0] / 2.0
        wanted = torch.distributions.Categorical(logits=logits[begin - 1 : end - 1]).entropy()
        assert shares == pytest.approx((wanted / torch.tensor(size).log()).tolist(), abs=1e-5)
        assert all(0 < each < 1 for each in shares)


def test_by_entropy_a_group_has_its_size_and_some_of_it_branches(
    engine, tokenizer, params, problems, prompts
):
    part = EntropyRise()
    found = played(engine, tokenizer, params, problems, prompts, part, size=4)
    assert {len(group) for group in found} == {4}
    # Two begin at once: these are the samples that they are in any group.
    assert all([each.id.rpartition("/")[2] for each in group][:2] == ["0", "1"] for group in found)
    assert any("<" in episode.id for group in found for episode in group)
    assert found == played(engine, tokenizer, params, problems, prompts, part, size=4)


def test_a_session_is_not_branched_from():
    with pytest.raises(UserError, match="environment openenv names what one episode alone"):
        Episodes.parse(
            {
                "environment": {"kind": "openenv", "url": "http://127.0.0.1:1"},
                "branching": "entropy_rise",
            },
            where="rl.producer",
        )
