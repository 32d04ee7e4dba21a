"""The order in which problems and traces are handed on."""

from collections.abc import Callable
from typing import Literal

import polars as pl

Order = Literal["easy_to_hard", "easy_to_hard_then_short", "mixed"]


def easy_to_hard(frame: pl.DataFrame) -> pl.DataFrame:
    """By difficulty; among equals by id, which mixes the sources."""
    return frame.sort("difficulty", "id")


def easy_to_hard_then_short(frame: pl.DataFrame) -> pl.DataFrame:
    """By difficulty, among equals the shortest first: for data that come without difficulties."""
    text = "text" if "text" in frame.columns else "prompt"
    return frame.sort("difficulty", pl.col(text).str.len_chars(), "id")


def mixed(frame: pl.DataFrame) -> pl.DataFrame:
    """By id, as good as random and the same on every machine."""
    return frame.sort("id")


ORDERS: dict[Order, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "easy_to_hard": easy_to_hard,
    "easy_to_hard_then_short": easy_to_hard_then_short,
    "mixed": mixed,
}
