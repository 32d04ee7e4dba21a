"""Several who speak before each act in another world: who reads what, who acts, what it earns."""

from random import Random

import pytest
from pydantic import ValidationError

from posttrain.learning.episodes.environments.base import Act, Ask, Told
from posttrain.learning.episodes.posed import posed_problem
from posttrain.learning.episodes.registry import EPISODE_ENVIRONMENTS
from posttrain.learning.episodes.script import play_script
from posttrain.learning.episodes.worlds.guess import Guess
from posttrain.learning.episodes.worlds.relay import Relay
from posttrain.stage.errors import UserError

assert EPISODE_ENVIRONMENTS.parts["relay"] is Relay, "a relay finds its world among these"


def begun(**settings):
    world = Relay(**settings)
    prompt, facts = world.pose(Random(3))
    return world, prompt, world.begin(facts, 0)


def spoke(world, situation, *texts):
    acts = [Act(ask.role, text) for ask, text in zip(situation.asks, texts, strict=True)]
    return world.step(situation.state, acts, 0)


def test_the_last_one_acts_and_reads_what_the_others_said():
    world, prompt, first = begun(order=("guide", "policy"))
    assert first.asks == (Ask("guide", (Told("user", prompt),)),)
    hinted = spoke(world, first, "take\n 7")
    assert hinted.asks == (Ask("policy", (Told("user", f"{prompt}; guide: take 7"),)),)
    low, _, high, *_ = prompt.split(",")[0].split()
    acted = spoke(world, hinted, low)
    # What the world said of the act; the guide reads who acted how, the policy the new word alone.
    (told,) = acted.asks[0].new
    assert (acted.asks[0].role, told.text) == ("guide", f"policy: {low}; higher")
    again = spoke(world, acted, "more")
    assert again.asks == (Ask("policy", (Told("user", "higher; guide: more"),)),)
    assert int(low) < int(high)


def test_a_policy_that_speaks_first_reads_the_prompt_of_its_problem_and_earns_by_who_acts():
    world, prompt, first = begun(order=("policy", "reader"))
    assert first.asks == (Ask("policy"),)
    hidden = str(first.state["inner"]["hidden"])
    told = spoke(world, first, hidden)
    assert told.asks == (Ask("reader", (Told("user", f"{prompt}; policy: {hidden}"),)),)
    assert world.best_move(told.state, "reader", Random(1)) == hidden
    over = spoke(world, told, hidden)
    assert (over.asks, over.earned) == ((), {"policy": 1.0, "reader": 1.0})


def test_who_have_one_name_speak_at_once_and_read_each_other_afterwards():
    order = ("proposer:1", "proposer:2", "policy")
    world, prompt, first = begun(order=order)
    assert [ask.role for ask in first.asks] == ["proposer:1", "proposer:2"]
    assert {ask.new[0].text for ask in first.asks} == {prompt}
    merged = spoke(world, first, "1", "2")
    assert merged.asks[0].new[0].text == f"{prompt}; proposer:1: 1; proposer:2: 2"


def test_who_speaks_rarely_is_asked_before_every_so_many_th_act():
    world, _, first = begun(
        order=("planner", "policy"), every={"planner": 3}, settings={"guesses": 4}
    )
    asked, situation = [], first
    while situation.asks:
        asked.append(situation.asks[0].role)
        situation = spoke(world, situation, "0")
    assert asked == ["planner", "policy", "policy", "policy", "planner", "policy"]


def test_scripts_that_never_slip_play_as_the_world_itself_and_slips_cost():
    def solved(**settings):
        world, total = Relay(order=("policy", "actor"), **settings), 0.0
        for seed in range(60):
            draw = Random(seed)

            def speak(state, role, draw=draw):
                return world.best_move(state, role, draw)

            episode = play_script(world, posed_problem(world, seed), speak, seed=1, most_turns=99)
            total += sum(episode.earned("policy"))
        return total / 60

    alone, many = Guess(), 0.0
    for seed in range(60):
        draw = Random(seed)
        prompt, facts = alone.pose(Random(seed))
        situation = alone.begin(facts, 0)
        while situation.asks:
            act = Act("policy", alone.best_move(situation.state, "policy", draw))
            situation = alone.step(situation.state, [act], 0)
            many += situation.earned.get("policy", 0.0)
    assert solved() == pytest.approx(many / 60, abs=0.1)
    assert solved(slips=1.0) < solved() - 0.3


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"order": ("guide",)}, "name `policy` and each other role once"),
        ({"order": ("policy", "policy")}, "name `policy` and each other role once"),
        ({"order": ("policy", "boss")}, "order names boss; a relay has the roles actor, guide"),
        ({"order": ("policy", "actor:1")}, "order ends with actor:1; let one role alone act"),
        ({"every": {"policy": 2}}, "every.policy: 2 is no number of acts"),
        ({"every": {"guide": 0}}, "every.guide: 0 is no number of acts"),
        ({"of": "tictactoe"}, "world tictactoe asks opponent too"),
        ({"of": "repair"}, "what world repair answers may hang on a clock"),
        ({"of": "single"}, "of: single is no world to act in"),
        ({"of": "relay"}, "of: relay is no world to act in"),
    ],
)
def test_what_no_relay_can_be_is_refused(settings, told):
    with pytest.raises(ValidationError, match=told):
        Relay(**settings)


def test_a_stage_that_acts_in_a_world_may_reach_what_that_world_needs():
    assert (Relay().reaches(), Relay(of="sql").reaches()) == (frozenset(), {"sandbox"})
    _, facts = Relay(of="sql").pose(Random(3))
    told = "of world sql, which needs sandbox, and the stage acts in guess; set of to sql there"
    with pytest.raises(UserError, match=told):
        Relay().begin(facts, 0)
    assert Relay(of="sql").begin(facts, 0).asks
