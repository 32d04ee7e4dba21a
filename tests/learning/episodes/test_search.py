"""A search engine that somebody plays: what it is asked, what is noise, and how often."""

import json
from random import Random

import pytest
from pydantic import ValidationError

from posttrain.data.schemas import Problem
from posttrain.data.sources.base import SourceRequest
from posttrain.data.sources.world import WorldSource
from posttrain.learning.episodes.config import PlayConfig
from posttrain.learning.episodes.environments.base import Act, Ask, Told
from posttrain.learning.episodes.sampling import EpisodeSamplingConfig
from posttrain.learning.episodes.script import play_script
from posttrain.learning.episodes.worlds.search import SimulatedSearch
from posttrain.learning.rl.config import RlConfig

POSED = {
    "passages": ["5 key 1", "2 map 3", "1 key 2", "7 map 8"],
    "question": "1 key map",
    "answer": "3",
    "searches": 2,
    "noise": 0.0,
    "informed": True,
}
RISING = {"from": 0.0, "to": 0.75, "over": 2, "shape": {"kind": "compound", "base": 4.0}}


def asked(*turns, world=None, seed=0, **changes):
    world = world or SimulatedSearch()
    situation = world.begin({**POSED, **changes}, 0)
    for turn in turns:
        ((role, _),) = situation.asks
        situation = world.step(situation.state, (Act(role, turn),), seed)
    return situation


def test_an_engine_is_told_what_is_wanted_and_its_document_is_what_is_read():
    told = "1 key map = 3; useful: 1 key"
    assert asked("1 key").asks == (Ask("engine", (Told("user", told),)),)
    assert asked("1 key", noise=1.0).asks[0].new[0].text == "1 key map = 3; noisy: 1 key"
    read = asked("1 key", "  1 key\n2 ")
    assert read.asks == (Ask("policy", (Told("user", "1 key 2"),)),)
    assert (read.facts, asked("1 key", "5 key 1", noise=1.0).facts) == ({"noisy": 0}, {"noisy": 1})


def test_a_document_that_is_a_passage_of_the_problem_is_a_parent_of_the_episode():
    world = SimulatedSearch()
    metadata = json.dumps({"search": POSED})
    problem = Problem("s", "1 key map", "{}", 1, "played", metadata=metadata)
    asks = world.step(world.start(problem, 0).state, (Act("policy", "1 key"),), 0)
    engine = (("1 key 2", (f"{problem.id}:3",)), ("it is 1 key 2", ()), ("nothing", ()))
    for document, read in engine:
        assert world.step(asks.state, (Act("engine", document),), 0).read == read


def test_an_engine_that_is_not_informed_reads_the_query_alone_and_gives_no_noise():
    told = (Ask("engine", (Told("user", "1 key"),)),)
    assert asked("1 key", informed=False, noise=1.0).asks == told
    assert asked("1 key", world=SimulatedSearch(informed=False, noise=1.0)).asks == told
    assert asked("1 key", informed=False, noise=1.0).state["noisy"] is False


def test_traces_of_the_engine_are_what_it_answers_to_what_it_reads(tmp_path):
    world = {"kind": "search", "hops": 1, "searches": 1, "shared": 1}
    request = SourceRequest(1, 4, 1, 0.0, tmp_path)
    traced = WorldSource(world=world, traced=("policy", "engine")).read(request).solutions
    ours, theirs = traced[::2], traced[1::2]
    assert [each.between for each in theirs] == [()] * 4
    for asking, engine in zip(ours, theirs, strict=True):
        question = asking.problem.prompt
        query, (document,) = (
            asking.between[0].content,
            [each.content for each in asking.between[1:]],
        )
        answer = json.loads(asking.problem.answer)["answer"]
        assert engine.problem.prompt == f"{question} = {answer}; useful: {query}"
        assert engine.text == document == f"{question} {answer}"
        assert engine.problem.parents == (asking.problem.id,)
    with pytest.raises(
        ValidationError, match="world 'search' has no role user; it has policy, eng"
    ):
        WorldSource(world=world, traced=("user",))


def test_the_script_of_the_engine_gives_what_is_asked_for_or_says_it_of_another_thing():
    world, draw = SimulatedSearch(), Random(1)
    state = asked("1 key").state
    assert world.best_move(state, "engine", draw) == "1 key 2"
    assert world.best_move({**state, "noisy": True}, "engine", draw) == "5 key 1"
    assert world.best_move({**state, "query": "who?"}, "engine", draw) == "nothing"


def test_a_good_player_asks_again_what_noise_answered_and_answers_by_what_it_read():
    world, draw = SimulatedSearch(), Random(1)
    read = asked("1 key", "5 key 1", searches=3)
    assert world.best_move(read.state, "policy", draw) == "1 key"
    after = asked("1 key", "5 key 1", "1 key", "1 key 2", "2 map", "2 map 3", searches=3)
    assert world.best_move(after.state, "policy", draw) == "= 3"
    over = world.step(after.state, (Act("policy", "= 3"),), 0)
    assert (over.asks, over.earned) == ((), {"policy": 1.0})
    # Whoever only guesses is right no less: what is paid is the answer.
    assert asked("= 3").earned == {"policy": 1.0}
    assert asked("= 2").earned == {}


def test_noise_is_as_frequent_as_the_stage_says_or_else_the_problem():
    def share(world, **changes):
        queries = (asked("1 key", world=world, seed=seed, **changes) for seed in range(2000))
        return sum(each.state["noisy"] for each in queries) / 2000

    assert share(SimulatedSearch(), noise=0.3) == pytest.approx(0.3, abs=0.04)
    assert share(SimulatedSearch(noise=0.6), noise=0.3) == pytest.approx(0.6, abs=0.04)
    assert share(SimulatedSearch(noise=0.0), noise=0.3) == 0.0


def test_with_noise_the_script_is_right_as_often_as_enough_documents_are_useful():
    # Four queries, two useful ones needed: 1 - 0.5^4 - 4 * 0.5^4 = 11/16.
    world = SimulatedSearch(noise=0.5)
    solved = 0
    for number in range(400):
        prompt, facts = world.pose(Random(number))
        problem = Problem("search", prompt, "", 1, "played", metadata=json.dumps({"search": facts}))
        draw = Random(number)

        def speak(state, role, draw=draw):
            return world.best_move(state, role, draw)

        episode = play_script(world, problem, speak, seed=number, most_turns=20)
        solved += sum(episode.earned("policy"))
    assert solved / 400 == pytest.approx(11 / 16, abs=0.07)


def test_shared_facts_are_those_of_every_problem_and_others_of_each():
    shared = [SimulatedSearch(shared=3).pose(Random(seed)) for seed in range(5)]
    assert len({json.dumps(each.facts["passages"]) for each in shared}) == 1
    assert len({each.prompt for each in shared}) > 1
    own = [SimulatedSearch().pose(Random(seed)).facts["passages"] for seed in range(5)]
    assert len({json.dumps(each) for each in own}) == 5


def test_sources_of_their_own_have_relations_of_their_own():
    def names(**settings):
        passages = SimulatedSearch(relations=2, **settings).pose(Random(1)).facts["passages"]
        return {passage.split()[1] for passage in passages}

    assert not names() & names(skipped=2)
    with pytest.raises(ValidationError, match="relations 2 and skipped 11 are more than the 12"):
        names(skipped=11)


def test_a_step_of_rl_has_its_noise_by_the_schedule():
    producer = {"kind": "episodes", "environment": {"kind": "search", "noise": RISING}}
    config = RlConfig.parse({"producer": producer}, where="rl")
    # (4^(1/2) - 1) / (4 - 1) = 1/3 of the way at half time.
    steps = [config.at(step).producer.environment.noise for step in range(4)]
    assert steps == pytest.approx([0.0, 0.25, 0.75, 0.75])


@pytest.mark.parametrize(
    "parse",
    [
        lambda world: EpisodeSamplingConfig(environment=world),
        lambda world: WorldSource(world=world),
    ],
)
def test_a_schedule_of_noise_is_refused_where_there_are_no_steps(parse):
    with pytest.raises(ValidationError, match=r"noise is a schedule, and there are no steps here"):
        parse({"kind": "search", "noise": RISING})


@pytest.mark.parametrize(
    ("environment", "role", "told"),
    [
        ("search", "engin", "roles.engin: environment search asks no role .*did you mean 'engine'"),
        ("tictactoe", "user", "environment tictactoe asks no role .*; it asks opponent"),
        ("guess", "opponent", "environment guess asks no role .*; it asks the policy alone"),
    ],
)
def test_a_role_that_the_environment_does_not_ask_is_refused(environment, role, told):
    with pytest.raises(ValidationError, match=told):
        PlayConfig(environment=environment, roles={role: {"kind": "script"}})
