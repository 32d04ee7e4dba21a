"""A bug in a world of one's own is a sentence with method, file and remedy."""

from typing import Literal

import pytest

from posttrain.learning.episodes.environments.base import POLICY, Ask, Situation, Told
from posttrain.learning.episodes.posed import posed_problem, speaking
from posttrain.learning.episodes.registry import EPISODE_ENVIRONMENTS
from posttrain.learning.episodes.script import play_script
from posttrain.learning.episodes.worlds.base import Posed, World
from posttrain.stage.errors import UserError

HERE = "tests/learning/episodes/test_contract.py"


class Parrot(World):
    """Say it again, twice; a test takes one of its answers for another."""

    kind: Literal["parrot"] = "parrot"

    def pose(self, draw):
        return Posed("say a", {"want": "a"})

    def begin(self, facts, seed):
        return Situation({**facts, "left": 2}, (Ask(POLICY),), key="first")

    def step(self, state, acts, seed):
        after = {**state, "left": state["left"] - 1}
        again = (Ask(POLICY, (Told("user", "again"),)),) if after["left"] else ()
        return Situation(after, again, earned={POLICY: 0.5}, key="second")

    def best_move(self, state, role, draw):
        return state["want"]

    def random_move(self, state, role, draw):
        return "b"


def played(**methods):
    world = type("Parrot", (Parrot,), {"__module__": __name__, **methods})()
    return play_script(
        world,
        posed_problem(world, 0),
        speaking(world, "script", None),
        seed=0,
        most_turns=9,
    )


def situation(*values, **named):
    return lambda *_: Situation(*values, **named)


ASKS = (Ask(POLICY),)


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ({"pose": lambda *_: "say a"}, "`pose` gave 'say a'; let it give Posed(prompt, facts)"),
        (
            {"pose": lambda *_: Posed("say a", {"want": {1, 2}})},
            "`pose` gave facts that JSON cannot hold: facts['want'] is {1, 2}; keep a mapping",
        ),
        ({"begin": lambda *_: None}, "`begin` gave None; let it give a Situation"),
        ({"begin": situation({}, key="k")}, "`begin` asked nobody; let it ask a role to speak"),
        (
            {"begin": situation({}, ASKS)},
            "`begin` asks somebody in a situation with an empty `key`; name it, equal",
        ),
        (
            {"begin": situation({"board": [{7: "x"}]}, ASKS, key="k")},
            "`begin` gave a state that JSON cannot hold: state['board'][0] has the key 7; keep",
        ),
        (
            {"step": situation({"far": float("inf")}, key="k")},
            "`step` gave a state that JSON cannot hold: state['far'] is inf; keep",
        ),
        (
            {"step": situation({}, Ask(POLICY), key="k")},
            "`step` asks Ask(role='policy', new=()); write a tuple, as in (Ask(POLICY),)",
        ),
        ({"step": situation({}, (*ASKS, *ASKS), key="k")}, "`step` asks policy twice at once"),
        (
            {"step": situation({}, (Ask(POLICY, ("no",)),), key="k")},
            "`step` tells policy ('no',); write messages, as in (Told(\"user\", \"no\"),)",
        ),
        (
            {"step": situation({}, earned={POLICY: "1"})},
            "`step` pays policy '1'; let it pay finite numbers",
        ),
        (
            {"step": situation({}, earned={POLICY: 1.5})},
            "`step` ended an episode in which policy earned 1.5 in all; let it add up to a number",
        ),
        (
            {"step": situation({}, facts={"tool_errors": True})},
            "`step` counts tool_errors True; let `facts` be finite numbers by their names",
        ),
        (
            {"step": situation({}, read="a.txt:1")},
            "`step` showed 'a.txt:1'; let `read` be a tuple of ids of rows",
        ),
        (
            {"step_all": lambda *_: []},
            "`step_all` gave [] for 1 episodes; let it give a situation for each",
        ),
        ({"best_move": lambda *_: 7}, "`best_move` or `random_move` said 7; let it say a text"),
    ],
)  # fmt: skip
def test_what_no_world_may_give_is_refused(methods, said):
    with pytest.raises(UserError) as refused:
        played(**methods)
    assert str(refused.value).startswith(f"environment parrot in {HERE}: {said}")


def test_what_it_may_give_is_let_through():
    assert played().earned(POLICY) == (0.5, 0.5)
    # Three thirds are not quite one; what broke has no score, and a tuple is a list.
    third = 1 / 3
    paid = [third, third, third + 1e-12]
    assert sum(played(
        begin=situation({"left": 3, "want": ("a",)}, ASKS, key="k"),
        best_move=lambda *_: "a",
        step=lambda _, state, acts, seed: Situation(
            {**state, "left": state["left"] - 1},
            (Ask(POLICY, (Told("user", "more"),)),) if state["left"] > 1 else (),
            earned={POLICY: paid[state["left"] - 1]},
            key="k",
        ),
    ).earned(POLICY)) == pytest.approx(1.0)  # fmt: skip
    broken = played(step=situation({}, ASKS, {POLICY: 7.0}, "k", failed="no page"))
    assert (broken.end, len(broken.log)) == ("failed", 1)


def test_methods_of_a_world_are_looked_at_as_those_of_an_environment():
    class Blind(Parrot):
        def pose(self):
            return Posed("say a", {})

    said = EPISODE_ENVIRONMENTS.complaint("parrot", Blind)
    assert said is not None
    assert said.endswith("whose pose takes other arguments; define it as pose(draw)")
    assert EPISODE_ENVIRONMENTS.complaint("parrot", Parrot) is None
    # All that ship would pass.
    for kind, part in EPISODE_ENVIRONMENTS.parts.items():
        assert EPISODE_ENVIRONMENTS.complaint(kind, part) is None
