"""A planner above two agents: who is called, what each finds in its source, what is passed on."""

import json
from random import Random

import pytest
from pydantic import ValidationError

from posttrain.data.schemas import Problem
from posttrain.learning.episodes.environments.base import Act, Ask, Told
from posttrain.learning.episodes.posed import posed_problem, speaking
from posttrain.learning.episodes.script import play_script
from posttrain.learning.episodes.worlds.delegation import Delegation
from posttrain.learning.episodes.worlds.search import SimulatedSearch

POSED = {
    "passages": ["1 key 2", "2 hat 3", "7 key 8"],
    "question": "1 key hat",
    "answer": "3",
    "local": ["key"],
    "calls": 2,
    "searches": 1,
    "refined": True,
}
WORLD = Delegation()


def after(*turns, **changes):
    situation = WORLD.begin({**POSED, **changes}, 0)
    for turn in turns:
        ((role, _),) = situation.asks
        situation = WORLD.step(situation.state, (Act(role, turn),), 0)
    return situation


def test_an_agent_reads_its_question_searches_its_own_source_and_reports():
    assert after("local 1 key").asks == (Ask("local:1", (Told("user", "1 key"),)),)
    assert after("local 1 key", "1 key").asks == (Ask("local:1", (Told("user", "1 key 2"),)),)
    # The passage is in the other agent's source.
    assert after("web 1 key", "1 key").asks == (Ask("web:1", (Told("user", "nothing"),)),)
    found = after("local 1 key", "1 key", "= 2")
    assert found.asks == (Ask("policy", (Told("user", "2"),)),)
    # The next call is of an agent that begins afresh.
    second = WORLD.step(found.state, (Act("policy", "web 2 hat"),), 0)
    assert (second.asks[0].role, second.facts) == ("web:2", {"web": 1.0})
    over = WORLD.step(found.state, (Act("policy", "= 3"),), 0)
    assert (over.asks, over.earned) == ((), {"policy": 1.0})


def test_what_an_agent_reads_is_a_parent_of_the_episode():
    problem = Problem("d", "?", "{}", 1, "played", metadata=json.dumps({"delegation": POSED}))
    situation = WORLD.start(problem, 0)
    read = []
    for role, turn in (("policy", "web 2 hat"), ("web:1", "2 hat"), ("web:1", "= 3")):
        situation = WORLD.step(situation.state, (Act(role, turn),), 0)
        read.append(situation.read)
    assert read == [(), (f"{problem.id}:2",), ()]


def test_a_finding_that_no_passage_says_is_dropped_unless_nobody_refines():
    dropped = after("local 1 key", "1 key", "= 9")
    assert (dropped.asks[0].new[0].text, dropped.facts) == ("nothing", {"dropped": 1.0})
    assert after("local 1 key", "1 key", "= 9", refined=False).asks[0].new[0].text == "9"
    # An agent whose queries are spent has to report.
    assert after("local 1 key", "7 key", "1 key").asks[0].new[0].text == "nothing"


def test_what_is_no_call_is_counted_and_the_last_turn_is_the_answer():
    assert after("who?").facts == {"tool_errors": 1.0}
    assert after("who?", "who?", "local 1 key").asks == ()


def test_the_script_solves_what_agents_can_find_and_a_planner_is_lost_without_them():
    def solved(**settings):
        world, total = Delegation(**settings), 0.0
        for seed in range(40):
            speak = speaking(world, "script", Random(seed))
            episode = play_script(world, posed_problem(world, seed), speak, seed=1, most_turns=99)
            total += sum(episode.earned("policy"))
        return total / 40

    assert solved(hops=3) == 1.0
    world, lost = Delegation(), 0.0
    for seed in range(40):
        draw = Random(seed)

        def speak(state, role, draw=draw):
            return world.best_move(state, role, draw) if role == "policy" else "= 0"

        episode = play_script(world, posed_problem(world, seed), speak, seed=1, most_turns=99)
        lost += sum(episode.earned("policy"))
    assert lost / 40 < 0.2


def test_an_agent_is_asked_as_the_world_search_asks_a_policy():
    """Who was trained on questions of one hop in `search` reads the same here, turn by turn."""
    alone = SimulatedSearch(hops=1, searches=1)
    facts = {**POSED, "question": "1 key", "answer": "2", "noise": 0.0, "informed": True}
    begun = alone.begin(facts, 0)
    query = alone.best_move(begun.state, "policy", Random(1))
    asked = alone.step(begun.state, (Act("policy", query),), 0)
    document = alone.best_move(asked.state, "engine", Random(1))
    here = after("local 1 key", query)
    assert (query, document) == (here.state["query"], here.asks[0].new[0].text)
    read = alone.step(asked.state, (Act("engine", document),), 0)
    ours = WORLD.best_move(here.state, "local:1", Random(1))
    assert alone.best_move(read.state, "policy", Random(1)) == ours == "= 2"
    assert json.loads(json.dumps(here.state)) == here.state


def test_more_hops_than_calls_cannot_be_asked_for():
    with pytest.raises(ValidationError, match="hops 4 is above calls 3; raise calls"):
        Delegation(hops=4)
