"""Rollouts that other processes make while the learner works: to the bits of one process."""

import importlib.util
import os
import pickle
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from posttrain.backends.cluster import local_pool
from posttrain.data.schemas import CURVE, ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.episodes.environments.base import POLICY, Act
from posttrain.learning.episodes.environments.corpus import CorpusSearch
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rl.replay import replay
from posttrain.pipeline.hermetic.process import keep_rules
from posttrain.pipeline.hermetic.view import StageView
from posttrain.stage import declared, rules
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.resources import RayResources
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run
from tests.learning.episodes.environments import Absent, Counting
from tests.learning.episodes.test_roles import Duel
from tests.quick import first_now

# Of a policy apart from the one that drew: what AReaL calls decoupled.
DECOUPLED = {
    "old_policy": "recomputed",
    "token_weights": {"importance": {"bound": "truncate", "high": 2.0}},
}
SMALL = {
    "steps": 5,
    "problems_per_step": 4,
    "group_size": 4,
    "max_tokens": 6,
    "staleness": 1,
    "algorithm": DECOUPLED,
    "optimization": {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
    "updates": {"minibatches": 2},
    # Now between steps, now between updates: what is begun is waited for.
    "checkpoint_every": 3,
}
# What is remembered from step to step must be remembered in the order of the steps.
REMEMBERS = {
    "components": {"correct": "verifier", "tokens": "tokens"},
    "combine": {
        "kind": "lagrangian",
        "maximize": {"correct": 1.0},
        "limits": {"tokens": {"at_most": 3.0}},
    },
    "bonus_may_outweigh": True,
}


def duel(**opponent):
    return {"kind": "episodes", "environment": Duel(), "roles": {"opponent": opponent}}


CASES = {
    "episodes": {"producer": {"kind": "episodes", "environment": Counting(rounds=2)}},
    # Of some nobody says a word; those are of the policy that would have spoken.
    "broken": {"producer": {"kind": "episodes", "environment": Absent(rounds=1)}},
    "checkpoint": {"producer": duel(kind="checkpoint", name="start", temperature=0.5)},
    "earlier": {"producer": duel(kind="earlier", every=1, most=2)},
    "earlier_two_ahead": {"staleness": 2, "producer": duel(kind="earlier", every=2, most=3)},
    "two_ahead": {"staleness": 2, "reward": REMEMBERS, "draw": {"sampler": "uniform"}},
    "adapter": {"learner": {"lora": {"rank": 2}, "ema_decay": 0.5}},
    "scheduled": {"temperature": {"from": 1.0, "to": 1.5, "over": 3}},
}


def trained(inputs, folder, ray=None, **config):
    outputs = {name: folder / name for name in ("policy", "rollouts", "curve", "report")}
    config, events = RlStageConfig(**SMALL | config), []
    (folder / "scratch").mkdir(parents=True)
    context = StageContext(3, 1, "cpu", folder / "scratch", events.append, ray=ray)
    run(config, inputs, outputs, context)
    logged = [event["metrics"] for event in events if event["kind"] == "metrics"]
    return outputs, [metrics for metrics in logged if "rl/seconds_learning" in metrics]


def same(one, other):
    for name, schema in (("rollouts", ROLLOUTS), ("curve", CURVE)):
        assert read_table(one[name], schema).equals(read_table(other[name], schema)), name
    assert one["report"].read_bytes() == (other["report"]).read_bytes()
    digests = [weights_digest(load_policy(each["policy"]).model) for each in (one, other)]
    assert digests[0] == digests[1]


@pytest.fixture(scope="module")
def inputs(guesser, coins_path):
    return {"policy": guesser, "problems": coins_path, "players.start": guesser}


class InTurn:
    """A pool whose work is done by this process, when it is asked for: as late as can be."""

    def __init__(self, count, make, *arguments):
        self.worker = make(*pickle.loads(pickle.dumps(arguments)))

    def equip(self, version, tools):
        self.tools = pickle.dumps((version, tools))

    def begin(self, piece):
        return self.tools, pickle.dumps(piece)

    def result(self, begun):
        tools, piece = map(pickle.loads, begun)
        self.worker.equip(*tools)
        return pickle.loads(pickle.dumps(self.worker.do(piece)))

    def close(self):
        pass


@pytest.mark.parametrize("case", first_now([*CASES, "processes"]))
def test_what_is_drawn_ahead_is_what_one_process_draws(inputs, tmp_path, monkeypatch, case):
    if case != "processes":
        monkeypatch.setattr(local_pool, "LocalPool", InTurn)
    settings = CASES[{"processes": "episodes"}.get(case, case)]
    alone, _ = trained(inputs, tmp_path / "alone", **settings)
    bound = settings.get("staleness", 1)
    other, seconds = trained(inputs, tmp_path / "ahead", ahead=bound, **settings)
    same(alone, other)
    by_step = read_table(other["rollouts"], ROLLOUTS).group_by("step", maintain_order=True)
    ages = [{step - 1 - v for row in frame["versions"] for v in row} for (step,), frame in by_step]
    # Nothing older than the bound: it is met once that many steps have been learned from.
    assert ages == [{min(step, bound)} for step in range(5)]
    # The first is drawn by the learner's process; later it is told how long it waited, at once
    # where two are ahead and the third must know what the second has made of the players.
    assert ("rl/seconds_waiting" in seconds[0]) == (case == "earlier_two_ahead")
    assert any("rl/seconds_generating" in each for each in seconds)
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    config = RlStageConfig(**SMALL | settings)
    found = replay(config, {"policy": inputs["policy"]}, other["rollouts"], context)
    assert found == weights_digest(load_policy(other["policy"]).model)


@pytest.mark.slow
def test_actors_draw_ahead_to_the_same_bits(inputs, tmp_path):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed here; run: pip install 'posttrain[ray]'")
    alone, _ = trained(inputs, tmp_path / "alone", **CASES["episodes"])
    cluster = RayResources(address="local", actors=1, cpus=0.1)
    other, seconds = trained(inputs, tmp_path / "ahead", ahead=1, ray=cluster, **CASES["episodes"])
    same(alone, other)
    assert any("rl/seconds_generating" in each for each in seconds)


class Deadly(Counting):
    """End the process that plays, once, and not the one that learns."""

    kind: Literal["deadly"] = "deadly"
    learner: int
    marker: str

    def step(self, state, acts, seed):
        if os.getpid() != self.learner and not Path(self.marker).exists():
            Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(state, acts, seed)


@pytest.mark.slow
def test_a_process_that_is_killed_in_an_episode_costs_its_time_alone(inputs, tmp_path, capfd):
    def playing(marker):
        environment = Deadly(rounds=2, learner=os.getpid(), marker=str(tmp_path / marker))
        return {"producer": {"kind": "episodes", "environment": environment}}

    alone, _ = trained(inputs, tmp_path / "alone", **playing("none"))
    other, _ = trained(inputs, tmp_path / "ahead", ahead=1, **playing("one"))
    assert (tmp_path / "one").exists()
    assert not (tmp_path / "none").exists()
    assert "is gone; another one does its work" in capfd.readouterr().out
    for name, schema in (("rollouts", ROLLOUTS), ("curve", CURVE)):
        assert read_table(alone[name], schema).equals(read_table(other[name], schema)), name


class Stubborn(Counting):
    """Refuse to be played in any process but the learner's."""

    kind: Literal["stubborn"] = "stubborn"
    learner: int

    def start(self, problem, seed):
        if os.getpid() != self.learner:
            raise UserError("this world is closed; come back later")
        return super().start(problem, seed)


class Looking(CorpusSearch):
    """Search for whatever was said."""

    kind: Literal["looking"] = "looking"

    def step(self, state, acts, seed):
        return super().step(state, [Act(POLICY, f"search({acts[0].text})")], seed)


@pytest.mark.slow
def test_a_corpus_is_found_beside_the_recipe_there_too(inputs, tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("1 is up\n2 is down\n")
    code = tuple(Path(__file__).parents[1].rglob("*.py"))
    view = StageView("rl", tmp_path, tmp_path, code=code, held=False)
    # As a stage's process does, but for what cannot be undone in this one.
    monkeypatch.setattr(declared, "_folders", [tmp_path])
    monkeypatch.setattr(rules, "_kept", [partial(keep_rules, view)])
    environment = Looking(file="notes.txt", author="user", shown=1)
    producer = {"kind": "episodes", "environment": environment, "most_turns": 2}
    with pytest.raises(UserError, match=r"'rl' reads .*notes\.txt, which its key does not know"):
        trained(inputs, tmp_path / "undeclared", ahead=1, producer=producer)
    view = replace(view, inputs=(tmp_path / "notes.txt",))
    monkeypatch.setattr(rules, "_kept", [partial(keep_rules, view)])
    alone, _ = trained(inputs, tmp_path / "alone", producer=producer)
    other, _ = trained(inputs, tmp_path / "ahead", ahead=1, producer=producer)
    same(alone, other)
    rows = read_table(other["rollouts"], ROLLOUTS)
    read = {each for _, *parents in rows["parents"].to_list() for each in parents}
    assert read <= {"notes.txt:1", "notes.txt:2"}
    assert read


@pytest.mark.slow
def test_what_is_refused_elsewhere_is_the_same_sentence(inputs, tmp_path):
    producer = {"kind": "episodes", "environment": Stubborn(learner=os.getpid())}
    with pytest.raises(UserError, match=r"^this world is closed; come back later$"):
        trained(inputs, tmp_path, ahead=1, producer=producer)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"ahead": 1}, "ahead 1 is more than staleness 0, .* raise staleness, or set ahead to 0"),
        (
            {"ahead": 1, "staleness": 1, "draw": {"max_rounds": 2, "train_on": "signal"}},
            "draw.max_rounds 2 samples on by what a round has earned",
        ),
    ],
)
def test_what_cannot_be_drawn_ahead_is_refused(settings, told):
    with pytest.raises(ValueError, match=told):
        RlStageConfig(**settings)


def test_where_it_is_drawn_is_in_no_key():
    plain, ahead = RlStageConfig(staleness=1), RlStageConfig(staleness=1, ahead=1)
    assert plain.keyed() == ahead.keyed()
