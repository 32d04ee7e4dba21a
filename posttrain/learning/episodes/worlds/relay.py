"""Relay: several speak one after the other before each act in another world."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from random import Random
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, JsonValue, model_validator

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.learning.episodes.worlds.base import Posed, World, WorldFacts
from posttrain.stage.errors import UserError
from posttrain.stage.slots import InSlot

_LONGEST_WORD = 400


class Relay(World):
    """Let several roles speak before each act in another world, each reading those before it.

    The last in `order` acts in that world; the others advise it. Roles of one name, `proposer:1`
    and `proposer:2`, speak at once. All earn what the act earned. Scripts that advise say the
    best move, a script that acts does what it was told last, and each of them errs by `slips`.
    """

    SOURCE = "DSP, arXiv 2302.11520; RLAdapter, arXiv 2309.17176; Pangu-Agent, arXiv 2312.14878"
    SIZES: ClassVar[tuple[str, ...]] = ("order", "settings", "slips")
    ROLES: ClassVar[frozenset[str]] = frozenset(
        {"thinker", "planner", "guide", "proposer", "reader", "actor"}
    )

    kind: Literal["relay"] = "relay"
    of: str = "guess"
    """Kind of the world that is acted in: one that asks the policy alone."""
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    """What that world is set to."""
    order: tuple[str, ...] = ("guide", "policy")
    """Who speaks, `policy` among them; the last one acts. Others are called thinker, planner,
    guide, proposer, reader or actor, several of one name by a number behind a colon."""
    every: dict[str, int] = Field(default_factory=dict)
    """Role -> it speaks before every so many-th act only, and what it said stands until then."""
    slips: float = Field(default=0.0, ge=0.0, le=1.0)
    """Probability that a script beside the policy says any move."""

    @model_validator(mode="after")
    def _can_be_played(self) -> Self:
        if len(set(self.order)) < len(self.order) or POLICY not in self.order:
            raise ValueError(
                f"order {', '.join(self.order) or 'is empty'}: name `{POLICY}` and each other role"
                " once"
            )
        names = {role.partition(":")[0] for role in self.order}
        if strange := sorted(names - self.ROLES - {POLICY}):
            raise ValueError(
                f"order names {strange[0]}; a relay has the roles {', '.join(sorted(self.ROLES))}"
            )
        if ":" in self.order[-1]:
            raise ValueError(f"order ends with {self.order[-1]}; let one role alone act, the last")
        advising = {role.partition(":")[0] for role in self.order[:-1]}
        for role, acts in self.every.items():
            if role not in advising or acts < 1:
                raise ValueError(
                    f"every.{role}: {acts} is no number of acts after which one who advises in"
                    " `order` speaks again; name such a role, with 1 or more"
                )
        inner = _world(self.of, self.settings)
        if inner.roles_asked():
            raise ValueError(
                f"of: world {self.of} asks {', '.join(sorted(inner.roles_asked()))} too; take one"
                " that asks the policy alone"
            )
        if not inner.EXACT:
            raise ValueError(
                f"of: what world {self.of} answers may hang on a clock or a network, and episodes"
                " of a relay are exact; take another one"
            )
        return self

    def pose(self, draw: Random) -> Posed:
        """Pose a problem of the inner world; see `World.pose`."""
        prompt, facts = _world(self.of, self.settings).pose(draw)
        return Posed(
            prompt,
            {
                "prompt": prompt,
                "of": self.of,
                "facts": facts,
                "order": [list(roles) for _, roles in groupby(self.order, _name)],
                "every": self.every,
                "slips": self.slips,
            },
        )

    def reaches(self) -> frozenset[str]:
        """Reach what the inner world does, such as the sandbox; see `StageConfig.reaches`."""
        return _world(self.of, self.settings).reaches()

    def has_script(self) -> bool:
        """Tell whether the inner world has one; see `World.has_script`."""
        return _world(self.of, self.settings).has_script()

    def begin(self, facts: WorldFacts, seed: int) -> Situation:
        """Ask who speaks first; see `World.begin`.

        Args:
            facts: Of the problem.
            seed: Of the problem.

        Returns:
            Where the episode stands.

        Raises:
            UserError: The problem's world needs what the stage did not ask for.

        """
        if lacking := sorted(_world(facts["of"]).reaches() - self.reaches()):
            raise UserError(
                f"environment relay: the problems are of world {facts['of']}, which needs"
                f" {lacking[0]}, and the stage acts in {self.of}; set of to {facts['of']} there"
            )
        inner = _world(facts["of"]).begin(facts["facts"], seed)
        roles = [role for together in facts["order"] for role in together]
        state = {
            **{name: facts[name] for name in ("prompt", "of", "order", "every", "slips")},
            "heard": {role: [facts["prompt"]] for role in roles},
            "said": {},
            "acts": 0,
        }
        return _turn(state, inner, 0)

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:
        """Pass on what was said, or act by it; see `Environment.step`."""
        words = {act.role: " ".join(act.text.split())[:_LONGEST_WORD] or "-" for act in acts}
        heard = {
            role: [*each, *(f"{by}: {said}" for by, said in words.items() if by != role)]
            for role, each in state["heard"].items()
        }
        # What these were told they have read.
        heard |= {role: [f"{o}: {w}" for o, w in words.items() if o != role] for role in words}
        after = {**state, "heard": heard, "said": {**state["said"], **words}}
        if state["at"] < len(state["order"]) - 1:
            return _turn(after, None, state["at"] + 1)
        ((_, text, cut),) = acts
        inner = _world(state["of"]).step(state["inner"], [Act(POLICY, text, cut)], seed)
        after["acts"] = state["acts"] + 1
        news = [told.text for ask in inner.asks for told in ask.new]
        after["heard"] = {role: [*each, *news] for role, each in heard.items()}
        return _turn(after, inner, 0)

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:
        """Say what is best in the inner world, or do what was said; see `World.best_move`."""
        *before, last = [each for together in state["order"] for each in together]
        if role != POLICY and draw.random() < state["slips"]:
            return self.random_move(state, role, draw)
        if role == last and role != POLICY:
            # It was told by whoever spoke last before it.
            told: str = state["said"][before[-1]] if before else ""
            return told
        return _world(state["of"]).best_move(state["inner"], POLICY, draw)

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Say any move of the inner world; see `World.random_move`."""
        return _world(state["of"]).random_move(state["inner"], POLICY, draw)

    def close(self, state: EpisodeState) -> None:
        """Free what the inner world holds; see `Environment.close`."""
        _world(state["of"]).close(state["inner"])


def _world(kind: str, settings: Mapping[str, Any] | None = None) -> World:
    """The inner world; to play on, its kind is enough."""
    world = InSlot("environment").slot.parse({"kind": kind, **(settings or {})})
    if not isinstance(world, World) or isinstance(world, Relay):
        raise ValueError(f"of: {kind} is no world to act in; `posttrain env list` shows them")
    return world


def _name(role: str) -> str:
    return role.partition(":")[0]


def _turn(state: Mapping[str, Any], inner: Situation | None, place: int) -> Situation:
    """Ask the next who are due; `inner` is where the world stands, if it has moved."""
    after = dict(state)
    paid: dict[str, float] = {}
    facts: Mapping[str, float] = {}
    if inner is not None:
        after |= {"inner": inner.state, "key": inner.key}
        facts = inner.facts
        if earned := inner.earned.get(POLICY, 0.0):
            paid = {role: earned for together in state["order"] for role in together}
        if not inner.asks:
            after["at"] = 0
            return Situation(after, earned=paid, facts=facts, failed=inner.failed)
    due = place
    while after["acts"] % after["every"].get(_name(after["order"][due][0]), 1):
        due += 1
    after["at"] = due
    asks = tuple(_ask(after, role) for role in after["order"][due])
    heard = sorted(f"{role}<{'|'.join(each)}" for role, each in after["heard"].items())
    key = f"{after['key']}/{due}/{'/'.join(heard)}"
    return Situation(after, asks, paid, key, facts)


def _ask(state: Mapping[str, Any], role: str) -> Ask:
    heard = state["heard"][role]
    if role == POLICY and heard == [state["prompt"]]:
        # It reads the problem's own prompt, as every stage writes it.
        return Ask(role)
    return Ask(role, (Told("user", "; ".join(heard)),))
