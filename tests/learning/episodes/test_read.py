"""What an episode has shown of documents is among the parents of its rows."""

import json
from typing import Literal

import pytest

from posttrain.data.schemas import completions_table
from posttrain.learning.episodes.environments.base import POLICY
from posttrain.learning.episodes.excerpt import excerpt
from posttrain.learning.episodes.play import Role, play, retrace
from posttrain.learning.episodes.players.base import PlayBench
from posttrain.learning.episodes.sampling import EpisodeSamplingConfig, PlayingEngine
from posttrain.learning.rl.drawn import of_episode
from posttrain.learning.rl.rollout import from_plain, plain
from posttrain.learning.rl.store import rollouts_table, stored_groups
from posttrain.learning.rollouts.scoring import sample_and_score, verifying
from tests.learning.episodes.environments import Counting
from tests.scripted import FakeEngine

SEED = 5


class Showing(Counting):
    """Show a line of a file after every turn, and the first one always."""

    kind: Literal["showing"] = "showing"

    def step(self, state, acts, seed):
        line = 2 + self.rounds - state["left"]
        return super().step(state, acts, seed)._replace(read=("notes:1", f"notes:{line}"))


@pytest.fixture
def engine(tokenizer):
    return FakeEngine(tokenizer, lambda *_: "5")


@pytest.fixture
def episode_of(engine, tokenizer, params, problems, prompts):
    def run(environment, most_turns=9):
        roles = {POLICY: Role(engine, tokenizer, params)}
        groups = play(environment, problems, prompts, roles, seed=SEED, most_turns=most_turns)
        return groups[0][0]

    return run


def test_what_was_shown_and_answered_is_read_once_and_in_order(episode_of):
    assert episode_of(Showing(rounds=2)).read == ("notes:1", "notes:2", "notes:3")
    # What comes with the last word, or at the most turns, nobody reads any more.
    assert episode_of(Showing(rounds=0)).read == ()
    assert episode_of(Showing(rounds=9), most_turns=2).read == ("notes:1", "notes:2")
    assert episode_of(Counting()).read == ()


def test_a_rollout_keeps_what_was_read_as_parents_through_checkpoint_and_table(
    episode_of, problems
):
    (read,) = of_episode(episode_of(Showing()), problems[0], group=0, version=0)
    (none,) = of_episode(episode_of(Counting()), problems[0], group=1, version=0)
    table = rollouts_table([(1, read), (1, none)])
    problem = problems[0].id
    assert table["parents"].to_list() == [[problem, "notes:1", "notes:2", "notes:3"], [problem]]
    # They are no part of what a row is: equal tokens, equal ids.
    assert table["id"][0] == rollouts_table([(1, read._replace(read=()))])["id"][0]
    assert dict(stored_groups(table)) == {1: [[read], [none]]}
    assert from_plain(plain([[read]])) == [[read]]


def test_what_is_said_again_shows_the_same(episode_of, problems):
    episode = episode_of(Showing())
    again = retrace(Showing(), problems[0], episode.id, episode.log, seed=SEED)
    assert [each.read for each in again] == [each.read for each in episode.situations]


def test_an_attempt_has_what_it_read_among_its_parents(
    engine, tokenizer, params, problems, prompts
):
    known = {problem.id: problem for problem in problems}
    config = EpisodeSamplingConfig(environment=Showing(rounds=1))
    playing = PlayingEngine(engine, config, known, config.seated(PlayBench(engine, tokenizer)))
    with verifying(None) as verify:
        made = sample_and_score(playing, problems, prompts, params, verify=verify)
    parents = completions_table([each.completion("policy") for each in made])["parents"]
    assert parents.to_list() == [
        [problem.id, "notes:1", "notes:2"] for problem in problems for _ in range(3)
    ]


def test_half_a_letter_of_a_server_is_read_as_a_question_mark(tokenizer):
    told = json.loads('"a\\ud83d b"')
    with pytest.raises((TypeError, UnicodeEncodeError)):
        tokenizer(told)
    assert excerpt(told, 9) == "a? b"
    assert tokenizer(excerpt(told, 9))["input_ids"]
