"""The games of the library textarena that run offline, for one player and for two."""

import io
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import reduce
from operator import xor
from random import Random
from threading import Lock
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field, field_validator

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.learning.episodes.worlds.base import OPPONENT, Posed, World, WorldFacts
from posttrain.learning.episodes.worlds.underway import Underway
from posttrain.stage.errors import UserError
from posttrain.stage.extras import extra_line
from posttrain.stage.hashing import sha256_of_json

# What was played here without a network, and twice alike; the rest of the library's games want a
# model, a download or more players, or do not start.
_ONE_PLAYER = """
2048 Bandit Blackjack Countdown Crosswords Cryptarithm FifteenPuzzle FrozenLake GuessTheNumber
LightsOut LogicPuzzle Mastermind Minesweeper PegJump RushHour Secretary Set Slitherlink Sudoku
ThreeCardMonte TowerOfHanoi
"""
_TWO_PLAYERS = """
Alquerque Battleship Breakthrough Briscola Chopsticks ColonelBlotto ConnectFour Crusade
GameOfPureStrategy GermanWhist Golf HighSociety IndianPoker IteratedMatchingPennies
IteratedPrisonersDilemma IteratedRockPaperScissors IteratedTwoThirdsAverage
IteratedUltimatumGame KuhnPoker LiarsDice LinesOfAction MarketEntryGame MemoryGame NewRecruit
Nim Othello PigDice Poker QuantumTicTacToe SimpleBlindAuction SimpleNegotiation SimpleTak Snake
SpiteAndMalice Stratego Surround Tak TicTacToe TruthAndDeception TwoDollar UltimateTicTacToe
WildTicTacToe
"""
_PLAYERS = {
    f"{name}-v0": players
    for players, names in ((1, _ONE_PLAYER), (2, _TWO_PLAYERS))
    for name in names.split()
}
_BRACKETED = re.compile(r"\[[^\[\]\n]{1,40}\]")


class TextArena(World):
    """Play a game of textarena that runs offline, alone or against an opponent.

    A turn is what the game says that a move looks like, mostly something in brackets. A game for
    one player earns what it says, from 0 to 1; of two players who wins earns 1, a draw 0.5 each.
    Who begins is drawn; what an opponent has done before the policy's first turn is the problem's.
    A move on which the game itself breaks loses it.
    """

    SIZES: ClassVar[tuple[str, ...]] = ("game", "turns", "opponent_errors")
    SOURCE: ClassVar[str] = "textarena 0.7.4, arXiv 2504.11442"
    PACKAGES: ClassVar[frozenset[str]] = frozenset({"textarena"})
    ROLES: ClassVar[frozenset[str]] = frozenset({OPPONENT})

    kind: Literal["textarena"] = "textarena"
    game: str = "Nim-v0"
    """Its name in textarena, with or without what makes it larger: `Nim-v0`, `Nim-v0-large`."""
    turns: int = Field(default=100, ge=1)
    """Moves of all players after which a game that is not over is lost, or drawn between two."""
    opponent_errors: float = Field(default=0.5, ge=0.0, le=1.0)
    """Probability that the opponent's script, where the game has one, moves at random."""

    @field_validator("game")
    @classmethod
    def _runs_offline(cls, value: str) -> str:
        if _family(value) not in _PLAYERS:
            raise ValueError(
                f"textarena's game '{value}' is not among those that run offline for one player or"
                f" two: {', '.join(sorted(_PLAYERS))}; take one of these, or a larger one"
            )
        return value

    def has_script(self) -> bool:
        """Tell whether it is a game that the script knows; see `World.has_script`."""
        return _family(self.game) in _SCRIPTS

    def pose(self, draw: Random) -> Posed:
        """Begin a game, and let the opponent move if it is the first; see `World.pose`."""
        players = _PLAYERS[_family(self.game)]
        seat = draw.randrange(players)
        begun: dict[str, Any] = {"game": self.game, "players": players, "moves": []}
        begun["seed"] = draw.getrandbits(31)
        facts = {**begun, "seat": seat, "errors": self.opponent_errors, "turns": self.turns}
        while (at := _stood(facts)).player != seat and at.paid is None:
            facts["moves"] = [*facts["moves"], self.best_move(facts, OPPONENT, draw)]
        if at.paid is not None or len(facts["moves"]) >= self.turns:
            # The opponent lost by its first moves: the policy has its place.
            at = _stood(begun)
            facts |= {"moves": [], "seat": at.player}
        return Posed(at.heard[-1].strip(), facts)

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - the facts decide
        """Ask the policy; see `World.begin`."""
        state = {**facts, "met": False}
        return Situation(state, (Ask(POLICY),), key=_key(state))

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Make the move; see `Environment.step`."""
        ((role, text, *_),) = acts
        after = {**state, "moves": [*state["moves"], text]}
        at = _stood(after)
        facts = {"tool_errors": 1.0} if at.wrong and role == POLICY else {}
        paid = at.paid
        if paid is None and len(after["moves"]) >= state["turns"]:
            paid = (0.0,) if state["players"] == 1 else (0.5, 0.5)
        if paid is not None:
            roles = {_role_of(state, player): each for player, each in enumerate(paid)}
            return Situation(after, earned=roles, facts=facts)
        asked = _role_of(state, at.player)
        told = at.heard[-1]
        if asked == OPPONENT and not state["met"]:
            # It may have moved before the policy came, and then has read the rules already.
            after["met"] = True
            told = "\n".join(at.all_told(at.player))
        ask = Ask(asked, (Told("user", told.strip() or "."),))
        return Situation(after, (ask,), key=_key(after), facts=facts)

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:
        """Move as the game's script does; an opponent errs, see `World.best_move`.

        Args:
            state: Where the episode stands.
            role: Who is asked.
            draw: Mixes an opponent's moves.

        Returns:
            A move.

        Raises:
            UserError: The policy is asked, and the game has no script.

        """
        script = _SCRIPTS.get(_family(state["game"]))
        if role == OPPONENT and (script is None or draw.random() < state["errors"]):
            return self.random_move(state, role, draw)
        if script is None:
            raise UserError(
                f"textarena's game {state['game']} has no script that plays it well; set"
                " demonstrations: 0 in the source, and begin with a model that can be asked"
            )
        at = _stood(state)
        return script.best(at, state["moves"])

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Say a move that the script knows, or brackets that were read; see `World.random_move`."""
        at = _stood(state)
        if script := _SCRIPTS.get(_family(state["game"])):
            return draw.choice(script.moves(at))
        read = _BRACKETED.findall("\n".join(at.all_told(at.player)))
        return draw.choice(read) if read else "[0]"


class _Stood(NamedTuple):
    """Where a game stands."""

    who: tuple[int, ...]
    """Who was to move at each time, the present player last."""
    heard: tuple[str, ...]
    """What that player was told then."""
    paid: tuple[float, ...] | None
    """What each player earned; None where the game goes on."""
    wrong: bool
    """True where the last move was none."""

    @property
    def player(self) -> int:
        return self.who[-1]

    def all_told(self, player: int) -> list[str]:
        return [text for who, text in zip(self.who, self.heard, strict=True) if who == player]


@dataclass
class _Game:
    """A game of the library that is under way; it draws from the process's own chance."""

    env: Any
    chance: Any
    stood: _Stood

    def move(self, text: str) -> None:
        """Make a move, and read what the next player is told."""
        player, before = self.stood.player, self.stood
        with _chance(self):
            try:
                over, _ = self.env.step(text)
                paid = _paid(self.env, before) if over else None
                said = (player, "") if over else _observed(self.env)
                wrong = self.env.state.error_count > 0 or _ended_wrongly(self.env, player)
            except Exception:  # noqa: BLE001 - games break in many ways on what they do not expect
                lost = [1.0] * self.env.state.num_players
                lost[player] = 0.0
                paid, said, wrong = tuple(lost), (player, ""), True
        who, heard = (*before.who, said[0]), (*before.heard, said[1])
        self.stood = _Stood(who, heard, paid, wrong)


_UNDERWAY = Underway[_Game](256)
_LOCK = Lock()
"""Games take turns with the process's own chance."""


def _stood(state: Mapping[str, Any]) -> _Stood:
    """Stand where the moves lead, by the game that was kept before the last, or from the start."""
    moves = state["moves"]
    with _LOCK:
        game = _UNDERWAY.take(*_name(state, moves))
        if game is None:
            game = _UNDERWAY.take(*_name(state, moves[:-1])) if moves else None
            left = moves[-1:] if game else moves
            game = game or _begun(state)
            for move in left:
                game.move(move)
        _UNDERWAY.keep(*_name(state, moves), game)
        return game.stood


def _name(state: Mapping[str, Any], moves: Sequence[str]) -> tuple[str, str]:
    begun = json.dumps([state[name] for name in ("game", "players", "seed")])
    return begun, json.dumps([*moves])


def _begun(state: Mapping[str, Any]) -> _Game:
    try:
        import textarena
    except ImportError:
        raise UserError(
            "the world textarena needs the library textarena, which is not installed; run:"
            f" {extra_line('textarena')}"
        ) from None
    chance = Random(state["seed"]).getstate()
    game = _Game(None, chance, _Stood((0,), ("",), None, wrong=False))
    with _chance(game):
        try:
            # The variant that tells a player what is new, and not the whole game each time.
            game.env = textarena.make(f"{state['game']}-raw")
        except ValueError:
            raise UserError(
                f"textarena has no game '{state['game']}'; look its variants up in the library"
            ) from None
        game.env.reset(num_players=state["players"], seed=state["seed"])
        player, told = _observed(game.env)
    game.stood = _Stood((player,), (told,), None, wrong=False)
    return game


@contextmanager
def _chance(game: _Game) -> Iterator[None]:
    """Let a game draw from its own chance, as if nobody else drew from the process's, and print."""
    outer = random.getstate()
    random.setstate(game.chance)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        game.chance = random.getstate()
        random.setstate(outer)


def _observed(env: Any) -> tuple[int, str]:
    """Who is to move, and what it has been told since it moved last, without its own words."""
    player, messages = env.get_observation()
    # The game is -1; some games tell a player its own words by no number at all.
    said_by = {-1: "", 1 - player: f"player {1 - player}: "}
    texts = [said_by[by] + text for by, text, _ in messages if by in said_by]
    return player, "\n".join(texts)


def _paid(env: Any, before: _Stood) -> tuple[float, ...]:
    """What players earned, from 0 to 1; among two 1 for a win, and 0.5 for a draw."""
    rewards = env.close()[0] or {}
    if env.state.num_players == 1:
        return (min(max(float(rewards.get(0, 0.0)), 0.0), 1.0),)
    first, second = (float(rewards.get(player, 0.0)) for player in (0, 1))
    worth = 0.5 if first == second else float(first > second)
    return worth, 1.0 - worth


def _ended_wrongly(env: Any, player: int) -> bool:
    info = env.state.game_info or {}
    return bool(info.get(player, {}).get("invalid_move"))


def _role_of(state: Mapping[str, Any], player: int) -> str:
    return POLICY if player == state["seat"] else OPPONENT


def _family(game: str) -> str:
    """The name of a game without what makes it larger: `Nim-v0-large` is `Nim-v0`."""
    return "-".join(game.split("-")[:2])


def _key(state: Mapping[str, Any]) -> str:
    return sha256_of_json([state[name] for name in ("game", "players", "seed", "moves")])


class _Script:
    """How a game is played well, from what was read of it."""

    def best(self, at: _Stood, moves: Sequence[str]) -> str:
        raise NotImplementedError

    def moves(self, at: _Stood) -> list[str]:
        """All that may be a move, as far as it is told."""
        raise NotImplementedError


class _Guess(_Script):
    """Halve what is left."""

    def best(self, at: _Stood, moves: Sequence[str]) -> str:
        low, high = self._range(at)
        for move, told in zip(moves, at.heard[1:], strict=True):
            found = re.search(r"\[(\d+)\]", move)
            if found and "number is higher" in told:
                low = max(low, int(found[1]) + 1)
            elif found and "number is lower" in told:
                high = min(high, int(found[1]) - 1)
        return f"[{(low + high) // 2}]"

    def moves(self, at: _Stood) -> list[str]:
        low, high = self._range(at)
        return [f"[{number}]" for number in range(low, high + 1)]

    def _range(self, at: _Stood) -> tuple[int, int]:
        found = re.search(r"between (\d+) and (\d+)", at.heard[0])
        assert found
        return int(found[1]), int(found[2])


class _Nim(_Script):
    """Leave piles whose sizes are 0 in sum without carrying; else take one."""

    def best(self, at: _Stood, moves: Sequence[str]) -> str:  # noqa: ARG002 - the piles say it all
        piles = self._piles(at)
        over = reduce(xor, piles.values())
        for pile, size in piles.items():
            if size ^ over < size:
                return f"[{pile} {size - (size ^ over)}]"
        return self.moves(at)[0]

    def moves(self, at: _Stood) -> list[str]:
        piles = self._piles(at)
        return [f"[{pile} {take}]" for pile, size in piles.items() for take in range(1, size + 1)]

    def _piles(self, at: _Stood) -> dict[int, int]:
        found = re.findall(r"pile (\d+): (\d+)", "\n".join(at.all_told(at.player)))
        return {int(pile): int(size) for pile, size in found}


class _Hanoi(_Script):
    """Move the largest disk that is not in its place, and before it all that are in its way."""

    def best(self, at: _Stood, moves: Sequence[str]) -> str:  # noqa: ARG002 - the board says it all
        place = {disk: tower for tower, disks in self._towers(at).items() for disk in disks}
        goal, move = "C", ""
        for disk in sorted(place, reverse=True):
            if place[disk] != goal:
                move = f"[{place[disk]} {goal}]"
                goal = ({*"ABC"} - {place[disk], goal}).pop()
        return move

    def moves(self, at: _Stood) -> list[str]:
        towers = self._towers(at)
        return [
            f"[{one} {other}]"
            for one, disks in towers.items()
            for other, below in towers.items()
            if disks and one != other and (not below or below[-1] > disks[-1])
        ]

    def _towers(self, at: _Stood) -> dict[str, list[int]]:
        found = re.findall(r"([ABC]): \[([\d, ]*)\]", "\n".join(at.heard))
        return {tower: [int(disk) for disk in disks.split(",") if disk] for tower, disks in found}


_SCRIPTS: Mapping[str, _Script] = {
    "GuessTheNumber-v0": _Guess(),
    "Nim-v0": _Nim(),
    "TowerOfHanoi-v0": _Hanoi(),
}
