"""Tic-tac-toe on a board of any small size, against an opponent who errs now and then."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from random import Random
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.learning.episodes.worlds.base import OPPONENT, Posed, World, WorldFacts

_EMPTY, _SIDES = ".", "XO"
# What best moves of a whole game are found for within a second or two.
_MOST_CELLS = 12


class TicTacToe(World):
    """Put marks on a board by turns; the first with enough of them in a line wins.

    A turn is the letter of a free cell; any other turn is lost. A problem is a position after some
    moves at random, of which the policy plays on: which side it has follows from their number. It
    earns 1 for a win and 0.5 for a draw, and the opponent the rest of 1.

    Source: own world.
    """

    SIZES: ClassVar[tuple[str, ...]] = ("width", "height", "in_row", "opponent_errors")
    ROLES: ClassVar[frozenset[str]] = frozenset({OPPONENT})

    kind: Literal["tictactoe"] = "tictactoe"
    width: int = Field(default=3, ge=2, le=6)
    """Cells of a row."""
    height: int = Field(default=3, ge=2, le=6)
    """Rows of the board, of 12 cells at most."""
    in_row: int = Field(default=3, ge=2)
    """Marks in a line that win."""
    opening: int = Field(default=4, ge=0)
    """Most moves that have been made at random before the policy's first."""
    opponent_errors: float = Field(default=0.5, ge=0.0, le=1.0)
    """Probability that the opponent's script moves at random, and not by the best move."""

    @model_validator(mode="after")
    def _is_small(self) -> Self:
        if (cells := self.width * self.height) > _MOST_CELLS:
            raise ValueError(
                f"a board of {self.width} x {self.height} has {cells} cells; the best moves are"
                f" found for at most {_MOST_CELLS}"
            )
        if self.in_row > max(self.width, self.height):
            raise ValueError(f"in_row {self.in_row} fits in no line of the board; lower it")
        if self.opening >= min(cells, 2 * self.in_row - 1):
            raise ValueError(
                f"after {self.opening} moves of an opening the game may be over; lower opening"
            )
        return self

    def pose(self, draw: Random) -> Posed:
        """Make some moves at random; see `World.pose`."""
        board = _EMPTY * (self.width * self.height)
        for ply in range(draw.randint(0, self.opening)):
            board = _marked(board, draw.choice(_free(board)), _SIDES[ply % 2])
        facts = {
            "width": self.width,
            "height": self.height,
            "in_row": self.in_row,
            "board": board,
            "errors": self.opponent_errors,
        }
        return Posed(f"{self.in_row} in a row. {_seen(facts, _to_move(board))}", facts)

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - nothing is drawn
        """Ask the policy, whose side is to move; see `World.begin`."""
        board = facts["board"]
        left = board.count(_EMPTY)
        return _asked({**facts, "side": _to_move(board), "left": left, "met": False}, POLICY, ())

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Make the move, and ask the other side; see `Environment.step`."""
        ((role, text, *_),) = acts
        side, cell = _side_of(state, role), _cell(text, state["board"])
        after = {**state, "left": state["left"] - 1}
        facts = {"tool_errors": 1.0} if cell is None and role == POLICY else {}
        if cell is not None:
            after["board"] = _marked(state["board"], cell, side)
        other = OPPONENT if role == POLICY else POLICY
        if _wins(after, side):
            return Situation(after, earned={role: 1.0}, facts=facts)
        if not after["left"]:
            return Situation(after, earned={POLICY: 0.5, OPPONENT: 0.5}, facts=facts)
        rules = f"{state['in_row']} in a row. " if other == OPPONENT and not state["met"] else ""
        told = (Told("user", rules + _seen(after, _side_of(state, other))),)
        return _asked({**after, "met": True}, other, told)._replace(facts=facts)

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:
        """Make a best move; the opponent errs as the problem has it; see `World.best_move`."""
        board, side = state["board"], _side_of(state, role)
        if role == OPPONENT and draw.random() < state["errors"]:
            return self.random_move(state, role, draw)
        lines = _lines(state["width"], state["height"], state["in_row"])
        mine, theirs = (_mask(board, each) for each in (side, _other(side)))
        worth = {
            cell: -_value(lines, len(board), theirs, mine | 1 << cell, state["left"] - 1)
            for cell in _free(board)
        }
        # A win at once is no better than one later, but nothing can come between.
        worth |= {cell: 2 for cell in worth if _won(lines, mine | 1 << cell)}
        best = [cell for cell, value in worth.items() if value == max(worth.values())]
        return _name(draw.choice(best))

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Take any free cell; see `World.random_move`."""
        return _name(draw.choice(_free(state["board"])))


def _asked(state: EpisodeState, role: str, told: tuple[Told, ...]) -> Situation:
    key = f"{_side_of(state, role)}{state['board']}{state['left']}"
    return Situation(state, (Ask(role, told),), key=key)


def _seen(state: EpisodeState, side: str) -> str:
    """What a side reads: its own name, and the board with its free cells by their letters."""
    cells = [_name(at) if mark == _EMPTY else mark for at, mark in enumerate(state["board"])]
    width = state["width"]
    rows = [" ".join(cells[at : at + width]) for at in range(0, len(cells), width)]
    return f"{side}: {' / '.join(rows)}"


def _to_move(board: str) -> str:
    return _SIDES[(len(board) - board.count(_EMPTY)) % 2]


def _other(side: str) -> str:
    return _SIDES[side == _SIDES[0]]


def _side_of(state: EpisodeState, role: str) -> str:
    side: str = state["side"]
    return side if role == POLICY else _other(side)


def _name(cell: int) -> str:
    return chr(ord("a") + cell)


def _cell(said: str, board: str) -> int | None:
    """The free cell that is named, if one is."""
    return next((cell for cell in _free(board) if _name(cell) == said.strip()), None)


def _free(board: str) -> list[int]:
    return [cell for cell, mark in enumerate(board) if mark == _EMPTY]


def _marked(board: str, cell: int, side: str) -> str:
    return board[:cell] + side + board[cell + 1 :]


def _mask(board: str, side: str) -> int:
    return sum(1 << cell for cell, mark in enumerate(board) if mark == side)


def _wins(state: EpisodeState, side: str) -> bool:
    lines = _lines(state["width"], state["height"], state["in_row"])
    return _won(lines, _mask(state["board"], side))


def _won(lines: Sequence[int], marks: int) -> bool:
    return any(marks & line == line for line in lines)


@lru_cache(maxsize=16)
def _lines(width: int, height: int, length: int) -> tuple[int, ...]:
    """All lines that win, as masks of cells."""

    def line(x: int, y: int, right: int, down: int) -> Iterator[int]:
        for step in range(length):
            yield (y + down * step) * width + x + right * step

    return tuple(
        sum(1 << cell for cell in line(x, y, right, down))
        for x in range(width)
        for y in range(height)
        for right, down in ((1, 0), (0, 1), (1, 1), (-1, 1))
        if 0 <= x + right * (length - 1) < width and y + down * (length - 1) < height
    )


@lru_cache(maxsize=1 << 20)
def _value(lines: tuple[int, ...], cells: int, mine: int, theirs: int, left: int) -> int:
    """What a position is worth to the side to move: 1 won, 0 drawn, -1 lost.

    Args:
        lines: That win.
        cells: Of the board.
        mine: Cells of the side to move, as a mask.
        theirs: The other side's.
        left: Turns that are left; fewer than free cells, where some were lost.

    """
    if _won(lines, theirs):
        return -1
    if not left:
        return 0
    best = -1
    for cell in range(cells):
        if not (mine | theirs) >> cell & 1:
            best = max(best, -_value(lines, cells, theirs, mine | 1 << cell, left - 1))
            if best == 1:
                break
    return best
