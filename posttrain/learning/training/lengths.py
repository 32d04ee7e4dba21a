"""How long a row may get that is trained on: a number of somebody's, or as the rows ask for."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from posttrain.learning.models.context import context_length
from posttrain.learning.models.record import ROOM, TAUGHT_QUANTILE
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.training.config import TrainingConfig

MaxLength = Annotated[int, Field(ge=8)] | Literal["auto"]
"""Most tokens of a row; `auto` goes by the rows: see `limit_of_rows`."""

LEAST = 512
"""Tokens that `auto` gives at the least, where the model has room for them."""

MOST = 4096
"""Tokens that `auto` gives at the most: memory grows with their square, so that more is for a
person to ask for."""


@dataclass(frozen=True)
class RowLimit:
    """Most tokens of a row, and why it is that many."""

    tokens: int
    needed: int = 0
    """Tokens that all but the longest rows have, of the source where these are most."""
    why: str = ""
    """A sentence where the rows decided; empty for a number of somebody's."""
    of_context: bool = False
    """True where the rows ask for more than the model's context has."""

    def tell(self, note: Callable[[str], None]) -> None:
        """Say why, where the rows decided."""
        if self.why:
            note(self.why)

    def refuse_context(self, lengths: Sequence[int], *, most: float, what: str, where: str) -> None:
        """Refuse a context that leaves out too much, which no other limit would mend.

        Args:
            lengths: Tokens of each row or pair.
            most: Largest share of them that may be left out.
            what: What they are, for the message: rows or pairs.
            where: Name of the stage.

        Raises:
            UserError: More are longer.

        """
        share = sum(length > self.tokens for length in lengths) / max(1, len(lengths))
        if self.of_context and share > most:
            raise UserError(
                f"{where}: {share:.0%} of the {what} are longer than the {self.tokens} tokens of"
                f" the model's context, the longest has {max(lengths)}; take a model with a longer"
                f" context, or shorter {what}"
            )

    def metrics(self, stage: str) -> dict[str, float]:
        """Say it in figures, which `posttrain plan` reads later on.

        Args:
            stage: Name before those of the metrics.

        Returns:
            The limit and what the rows need, where they decided.

        """
        if not self.why:
            return {}
        return {
            f"{stage}/max_length": float(self.tokens),
            f"{stage}/row_tokens": float(self.needed),
        }


def limit_of_rows(
    wanted: MaxLength, lengths: Sequence[int], sources: Sequence[str], *, room: int | None = None
) -> RowLimit:
    """Choose how long a row may get.

    `auto` is the `TAUGHT_QUANTILE` of the source with the longest rows, `ROOM` times that and in
    eights: what a policy writes behind a prompt wants a place too. It is within `LEAST` and `MOST`.

    Args:
        wanted: As the recipe has it; a number is taken as it is.
        lengths: Tokens of each row.
        sources: Source of each row; () where nobody says.
        room: Tokens of the model's context; None where it becomes what is chosen here.

    Returns:
        The limit.

    """
    if wanted != "auto":
        return RowLimit(wanted)
    by_source: dict[str, list[int]] = {}
    for length, source in zip(lengths, sources or ["the data"] * len(lengths), strict=True):
        by_source.setdefault(source, []).append(length)
    quantiles = {name: _quantile(found) for name, found in by_source.items()}
    longest = max(quantiles, key=lambda name: quantiles[name])
    chosen = 8 * math.ceil(ROOM * quantiles[longest] / 8)
    kinds = {LEAST: ", the least", MOST: ", the most"}
    tokens = min(max(chosen, LEAST), MOST)
    bound = kinds[tokens] if tokens != chosen else ""
    of_context = room is not None and room < tokens
    if room is not None and of_context:
        tokens, bound = room, ", the context of the model"
    needed = quantiles[longest]
    return RowLimit(tokens, needed, row_limit_told(tokens, needed, bound, longest), of_context)


def choose_limit(
    model: "PreTrainedModel",
    lengths: Sequence[int],
    sources: Sequence[str],
    config: "TrainingConfig",
    *,
    new_model: bool,
) -> RowLimit:
    """Choose how long a row may be, and refuse a limit that leaves out too much.

    Args:
        model: What learns; a new one gets the limit as its context.
        lengths: Tokens of each row.
        sources: Source of each row; () where nobody says.
        config: Of the stage.
        new_model: Whether the model begins from nothing.

    Returns:
        The limit.

    Raises:
        UserError: More rows are longer than the config lets be left out.

    """
    room = None if new_model else room_of(model)
    limit = limit_of_rows(config.max_length, lengths, sources, room=room)
    limit.refuse_context(lengths, most=config.most_left_out, what="rows", where=config.STAGE)
    fitted = config.model_copy(update={"max_length": limit.tokens})
    fitted.refuse_leaving_out(lengths, what="rows", where=config.STAGE)
    if new_model:
        # Rotary positions are computed as they are needed, so that no weight depends on it.
        model.config.max_position_embeddings = limit.tokens
    return limit


def row_limit_told(tokens: int, needed: int, bound: str = "", source: str = "") -> str:
    """Say in a sentence what `auto` is, and why.

    Args:
        tokens: The limit.
        needed: Tokens that all but the longest rows have.
        bound: What keeps it from what the rows ask for, if anything.
        source: Whose rows these are, where it is known.

    Returns:
        The sentence.

    """
    whose = f", those of {source}" if source else ""
    return (
        f"max_length auto is {tokens}{bound}, as {TAUGHT_QUANTILE:.0%} of the rows have at most"
        f" {needed} tokens{whose}"
    )


def room_of(model: "PreTrainedModel") -> int:
    """Return the most tokens that a model can attend to."""
    return context_length(model.config)


def most_measured(wanted: MaxLength, model: "PreTrainedModel") -> int:
    """Return the most tokens of a row that is measured and not learned.

    Args:
        wanted: As the recipe has it; with `auto` a row may be as long as the model can read, and
            as the longest that `auto` lets it learn.
        model: What measures.

    """
    return min(room_of(model), MOST) if wanted == "auto" else wanted


def _quantile(lengths: Sequence[int]) -> int:
    """The nearest length at or over the quantile."""
    ordered = sorted(lengths)
    return ordered[math.ceil(TAUGHT_QUANTILE * (len(ordered) - 1))]
