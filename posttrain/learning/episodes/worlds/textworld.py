"""Quests that TextWorld's generator makes: things to be found, opened and put somewhere."""

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.learning.episodes.worlds.base import Posed, World, WorldFacts
from posttrain.learning.episodes.worlds.underway import Underway
from posttrain.stage.errors import UserError
from posttrain.stage.extras import extra_line

# What tells more about a place and changes nothing: all that it tells is read anyway.
_LOOKING = ("look", "inventory", "examine")
_UNDERWAY: "Underway[_Played]" = Underway(1024)


class _Played(NamedTuple):
    """A game as far as it was played, in TextWorld's own terms."""

    progress: Any
    names: Any


class TextWorld(World):
    """Do what a quest of TextWorld ends with, such as to put a thing from one room into another's.

    Rooms, things and quest come from the library's generator and its seed, and its rules say what
    can be done, which is read each turn with the room and what is carried. The quest's last command
    is the prompt, and what comes before it is to be found out. To complete the quest earns 1. The
    script is the library's own winning plan, which knows all of the game, and so more than is read.
    """

    SIZES: ClassVar[tuple[str, ...]] = ("rooms", "things", "steps")
    SOURCE: ClassVar[str] = "TextWorld, arXiv 1806.11532"
    PACKAGES: ClassVar[frozenset[str]] = frozenset({"textworld"})

    kind: Literal["textworld"] = "textworld"
    rooms: int = Field(default=4, ge=1, le=30)
    """Rooms of the game."""
    things: int = Field(default=4, ge=1, le=50)
    """Things that lie in them, beside those that the quest needs."""
    steps: int = Field(default=4, ge=1, le=20)
    """Commands of the quest."""
    turns: int = Field(default=12, ge=1)
    """Turns of an episode."""

    def pose(self, draw: Random) -> Posed:
        """Let the generator make a game; see `World.pose`."""
        textworld = _imported()
        options = textworld.GameOptions()
        options.nb_rooms, options.nb_objects = self.rooms, self.things
        options.quest_length = self.steps
        options.seeds = draw.getrandbits(31)
        game = textworld.generator.make_game(options)
        facts = {"game": _written(game), "turns": self.turns}
        told = _read(_played(facts, ()))
        return Posed(f"{game.metadata['walkthrough'][-1]}\n{told}", facts)

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - nothing is drawn
        """Ask for the first command; see `World.begin`."""
        state = {**facts, "said": [], "left": facts["turns"]}
        played = _taken(state)
        _kept(state, played)
        return Situation(state, (Ask(POLICY),), key=_read(played))

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Do what is said, if it can be done; see `Environment.step`."""
        said = acts[0].text.strip()
        played = _taken(state)
        actions = _actions(played)
        after = {**state, "left": state["left"] - 1}
        if said in actions:
            played.progress.update(actions[said])
            after["said"] = [*state["said"], said]
        _kept(after, played)
        facts = {} if said in actions else {"tool_errors": 1.0}
        if played.progress.completed:
            return Situation({**after, "left": 0}, earned={POLICY: 1.0}, facts=facts)
        if played.progress.failed or not after["left"]:
            return Situation({**after, "left": 0}, facts=facts)
        read = _read(played)
        told = Told("user", read if said in actions else f"you cannot; {read}")
        return Situation(after, (Ask(POLICY, (told,)),), key=read, facts=facts)

    def close(self, state: EpisodeState) -> None:
        """Forget the game of an episode; see `Environment.close`."""
        _UNDERWAY.take(*_name(state))

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:
        """Follow the library's winning plan; see `World.best_move`."""
        played = _taken(state)
        plan = played.progress.winning_policy
        _kept(state, played)
        if not plan:
            return self.random_move(state, role, draw)
        return str(played.names.gen_commands_from_actions(plan[:1])[0])

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Do anything that can be done; see `World.random_move`."""
        played = _taken(state)
        _kept(state, played)
        return draw.choice(sorted(_actions(played)))


def _imported() -> Any:
    try:
        import textworld
        import textworld.generator
    except ModuleNotFoundError:
        raise UserError(
            "the world 'textworld' needs textworld, which is not installed; run:"
            f" {extra_line('textworld')}, or take the world 'doors', which needs nothing"
        ) from None
    return textworld


def _written(game: Any) -> dict[str, Any]:
    """A game as JSON, without the rules, which are the library's, and prose that nobody reads."""
    written = game.serialize()
    told = {
        "version": written["version"],
        "world": written["world"],
        "grammar": written["grammar"],
        "quests": [{**quest, "desc": ""} for quest in written["quests"]],
        "infos": [[name, {**each, "desc": None}] for name, each in written["infos"]],
        "metadata": written["metadata"],
    }
    return dict(json.loads(json.dumps(told)))


def _played(facts: Mapping[str, Any], said: Sequence[str]) -> _Played:
    """Make a game from what a problem says of it, and play it so far."""
    textworld = _imported()
    from textworld.generator.data import KnowledgeBase
    from textworld.generator.game import GameProgression
    from textworld.generator.inform7 import Inform7Game

    game = textworld.Game.deserialize({**facts["game"], "KB": KnowledgeBase.default().serialize()})
    played = _Played(GameProgression(game), Inform7Game(game))
    for command in said:
        played.progress.update(_actions(played)[command])
    return played


def _name(state: EpisodeState) -> tuple[str, str]:
    return str(state["game"]["metadata"]["uuid"]), json.dumps(state["said"])


def _taken(state: EpisodeState) -> _Played:
    """The game as it stands, which nobody else holds."""
    return _UNDERWAY.take(*_name(state)) or _played(state, state["said"])


def _kept(state: EpisodeState, played: _Played) -> None:
    _UNDERWAY.keep(*_name(state), played)


def _actions(played: _Played) -> dict[str, Any]:
    """What can be done, by its command."""
    actions = played.progress.valid_actions
    named = zip(played.names.gen_commands_from_actions(actions), actions, strict=True)
    return {str(name): action for name, action in named if name.split()[0] not in _LOOKING}


def _read(played: _Played) -> str:
    """The room, what is carried and what can be done, in an order that tells nothing."""
    infos, facts = played.progress.game.infos, list(played.progress.state.facts)
    carried = sorted(
        infos[fact.arguments[0].name].name
        for fact in facts
        if fact.name == "in" and fact.arguments[1].name == "I"
    )
    (room,) = (fact.arguments[1] for fact in facts if fact.name == "at" and _is_player(fact))
    has = f"; has {', '.join(carried)}" if carried else ""
    return f"{infos[room.name].name}{has}; can {', '.join(sorted(_actions(played)))}"


def _is_player(fact: Any) -> bool:
    return bool(fact.arguments[0].name == "P")
