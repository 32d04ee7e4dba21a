"""Environments of the library verifiers, played in process: what is read, called, paid, refused.

The library pins other versions than the tests have: `posttrain[verifiers]` in an environment of its
own runs these; here they are skipped, but for the first.
"""

import json
import sys
from pathlib import Path
from random import Random

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.episodes.environments.base import Act
from posttrain.learning.episodes.worlds import verifiers as world_module
from posttrain.learning.episodes.worlds.underway import Underway
from posttrain.learning.episodes.worlds.verifiers import VerifiersWorld
from posttrain.stage.errors import UserError


def test_without_the_package_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(UserError, match=r"pip install 'posttrain\[verifiers\]'"):
        VerifiersWorld(taskset="sums").pose(Random(0))


def test_agents_are_named_once_and_stages_name_the_taskset():
    assert VerifiersWorld(taskset="a", others=("user",)).roles_asked() == {"user"}
    with pytest.raises(UserError, match="name each agent once"):
        VerifiersWorld.parse({"taskset": "a", "others": ["user", "user"]}, where="environment")
    with pytest.raises(UserError, match="taskset"):
        VerifiersWorld.parse({"taskset": "../a"}, where="environment")
    facts = {"taskset": "sums"}
    with pytest.raises(UserError, match="problem is of the taskset sums, and the stage names b"):
        VerifiersWorld(taskset="b").begin(facts, 0)


class TestPlayed:
    """What needs the package."""

    @pytest.fixture(autouse=True)
    def _installed(self, monkeypatch):
        pytest.importorskip("verifiers.v1", reason="verifiers pins mcp to another version")
        monkeypatch.syspath_prepend(str(Path(__file__).parent))
        monkeypatch.setattr(world_module, "_UNDERWAY", Underway(16))
        yield
        left = world_module._UNDERWAY._kept
        assert not left, "every episode is closed at its end"

    def test_one_turn_is_scored_by_the_task_s_weighted_rewards(self):
        world = VerifiersWorld(taskset="verifiers_sums")
        prompt, facts = world.pose(Random(1))
        n = facts["index"]
        assert prompt == f"Add.\n\n{n} + 1?"
        for text, paid in ((str(n + 1), 1.0), ("9", 0.25), ("it is nine", 0.0)):
            (begun, end) = played(world, facts, [text])
            assert begun.asks[0].new == ()  # the problem's prompt is read
            assert (end.asks, end.failed) == ((), "")
            assert end.earned == {"policy": paid}
        broken = played(world, facts, ["crash"])[-1]
        assert "the scorer broke" in broken.failed
        assert not broken.earned
        half = VerifiersWorld(taskset="verifiers_sums", scale=0.5).pose(Random(1)).facts
        assert played(world, half, [str(n + 1)])[-1].earned == {"policy": 0.5}
        posed = [world.pose(Random(seed)) for seed in range(30)]
        assert len({json.dumps(each.facts) for each in posed}) == 5  # a task is one problem

    def test_tools_run_here_and_share_the_rollout_s_state(self):
        world = VerifiersWorld(taskset="verifiers_sums", settings={"task": {"tools": True}})
        facts = world.pose(Random(1)).facts
        right = str(facts["index"] + 1)
        said = ["so desk_add(2, 3)", 'desk_add({"a": 4, "b": "x"})', "desk_sub(1)", "desk_fails()"]
        told = played(world, facts, [*said, right])
        texts = [each.asks[0].new[0] for each in told[1:-1]]
        assert texts[0] == ("tool:desk_add", "5")
        assert [each.facts.get("tool_errors", 0.0) for each in told[1:]] == [0.0, 1.0, 1.0, 1.0, 0]
        assert "valid integer" in texts[1].text
        assert texts[2] == ("tool:desk_sub", "no tool desk_sub")
        assert "not today" in texts[3].text
        # One call that counted, in the state that the task is scored by: 0.75 + 0.25 + 0.125.
        assert told[-1].earned == {"policy": 1.0}
        wrong = played(world, facts, ["desk_add(2, 3)", "wrong"])[-1]
        assert wrong.earned == {"policy": 0.125}
        stopped = played(world, facts, ["desk_add(2, 3)", "no idea"])[-1]
        assert stopped.earned == {"policy": 0.125}

    def test_the_environment_is_the_user_and_ends_where_turns_do(self):
        world = VerifiersWorld(taskset="verifiers_digits", tasks=20, turns=4)
        prompt, facts = world.pose(Random(0))
        assert prompt == f"digit {facts['index']}?"
        first = [played(world, facts, [str(guess)])[1] for guess in range(10)]
        (digit,) = [guess for guess, each in enumerate(first) if not each.asks]
        assert first[digit].earned == {"policy": 1.0}  # 2.0, held within 0 and 1
        wrong = str((digit + 1) % 10)
        told = played(world, facts, [wrong] * 3 + [str(digit)])
        assert [len(each.asks) for each in told] == [1, 1, 1, 1, 0]
        assert told[-1].earned == {"policy": 0.5}
        assert played(world, facts, [wrong] * 4)[-1].earned == {"policy": 0.5}
        with pytest.raises(UserError, match="has no end; let `tasks` say"):
            VerifiersWorld(taskset="verifiers_digits").pose(Random(0))

    def test_an_episode_is_told_by_what_was_said_whatever_is_kept_or_beside_it(self, monkeypatch):
        world = VerifiersWorld(taskset="verifiers_digits", tasks=20, turns=3)
        facts = [world.pose(Random(seed)).facts for seed in range(4)]
        alone = [played(world, each, ["x", "y", "z"]) for each in facts]
        together = [world.begin(each, 0) for each in facts]
        for turn, text in enumerate("xyz"):
            acts = [Act("policy", text)]
            together = [world.step(each.state, acts, turn) for each in together]
            assert together == [each[turn + 1] for each in alone]
        monkeypatch.setattr(world_module, "_UNDERWAY", Underway(0))
        assert [played(world, each, ["x", "y", "z"]) for each in facts] == alone
        # Other seeds, other luck: what it draws is by the seed alone.
        assert played(world, facts[0], ["x", "y", "z"], seed=7) != alone[0]
        changed = {**alone[0][1].state, "told": "0"}
        assert "come to the same" in world.step(changed, [Act("policy", "y")], 1).failed

    def test_other_agents_are_roles(self):
        settings = {"taskset": "verifiers_sums", "env": {"id": "user-sim"}, "seat": "assistant"}
        world = VerifiersWorld(**settings, others=("user",))
        facts = world.pose(Random(2)).facts
        asked = world.begin(facts, 0)
        assert asked.asks[0].role == "user"
        assert f"{facts['index']} + 1?" in asked.asks[0].new[0].text
        asked = world.step(asked.state, [Act("user", "add one to it")], 1)
        (ask,) = asked.asks
        assert (ask.role, ask.new[0].text) == ("policy", "Add.\n\nadd one to it")
        asked = world.step(asked.state, [Act("policy", str(facts["index"] + 1))], 2)
        assert (asked.asks[0].role, len(asked.asks[0].new)) == ("user", 1)
        end = world.step(asked.state, [Act("user", "###DONE###")], 3)
        assert end.earned == {"policy": 1.0, "user": 0.0}
        with pytest.raises(UserError, match=r"nobody is named for it; write `others: \[user\]`"):
            VerifiersWorld(**settings).pose(Random(2))
        with pytest.raises(UserError, match="agents assistant, user; let `seat`"):
            VerifiersWorld(taskset="verifiers_sums", env={"id": "user-sim"}).pose(Random(2))

    def test_what_cannot_be_played_here_is_refused_in_a_sentence(self):
        for settings, why in (
            ({"taskset": "verifiers_sums", "settings": {"task": {"box": True}}}, "runs programs"),
            ({"taskset": "verifiers_nowhere"}, "cannot be loaded"),
            ({"taskset": "verifiers_sums", "settings": {"numbers": 1}}, "cannot be loaded"),
            ({"taskset": "verifiers_sums", "settings": {"number": 0}}, "has no tasks"),
        ):
            with pytest.raises(UserError, match=why):
                VerifiersWorld(**settings).pose(Random(0))
        digits = VerifiersWorld(taskset="verifiers_digits", tasks=1)
        facts = digits.pose(Random(0)).facts
        with pytest.raises(UserError, match="has several rollouts an episode"):
            played(digits, facts, ["twice"])
        late = VerifiersWorld(taskset="verifiers_digits", tasks=1, env={"waits": 9}, seconds=0.05)
        assert "does not go on" in played(late, late.pose(Random(0)).facts, ["x"])[-1].failed
        with pytest.raises(UserError, match="is not the one that was posed"):
            digits.begin({**facts, "key": "other"}, 0)


def played(world, facts, said, *, seed=0):
    metadata = json.dumps({"verifiers": facts})
    situations = [world.start(Problem("v", "p", "{}", 1, "played", metadata=metadata), 0)]
    for turn, text in enumerate(said):
        state = json.loads(json.dumps(situations[-1].state))
        situations.append(world.step(state, [Act("policy", text)], seed + turn))
        if not situations[-1].asks:
            break
    world.close(situations[-1].state)
    return situations
