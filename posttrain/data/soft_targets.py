"""What a teacher says of the tokens of rows: a table of its own kind, and tensors to learn from.

Of each learned token it holds the log-probabilities of the teacher's k likeliest tokens, and that
of all others together: what is kept of a distribution grows with k and not with the vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from posttrain.stage.artifact_kinds import ArtifactKind
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl
    import torch
    from torch import Tensor


def soft_targets_schema() -> "pl.Schema":
    """Return the columns: a row for each row that was taught, with one list entry a token."""
    import polars as pl

    columns: dict[str, Any] = {
        "id": pl.String,
        "parents": pl.List(pl.String),  # the row of text
        "teacher": pl.String,  # digest of its weights, or the endpoint and its model
        "temperature": pl.Float64,  # that its logits were divided by
        "top_k": pl.Int32,
        "token_ids": pl.List(pl.Int32),  # of the whole row, prompt included
        "places": pl.List(pl.Int32),  # of the N learned tokens among them
        "top_ids": pl.List(pl.Int32),  # N times top_k, likeliest first
        "top_logprobs": pl.List(pl.Float32),  # of these, in nats
        "rest_logprobs": pl.List(pl.Float32),  # N, of all other tokens together; -inf for none
    }
    return pl.Schema(columns)


SOFT_TARGETS = ArtifactKind(
    "soft_targets", suffix=".parquet", shape="table", schema=soft_targets_schema
)
"""The kind of such a table."""
_IDENTITY = ("row", "teacher", "top_k", "token_ids")
"""What names a row: whose text it is, who was asked, and for how much."""


@dataclass(frozen=True)
class SoftTargets:
    """A teacher's distributions at `N` tokens, over its `K` likeliest ones and all others."""

    ids_NK: "Tensor"
    logprobs_NK: "Tensor"
    """In nats, under the teacher's softmax at its temperature."""
    rest_N: "Tensor"
    """Log of the probability of all tokens but these."""
    temperature: float = 1.0
    """That the teacher's logits were divided by; a student's are too."""

    def to(self, device: "str | torch.device") -> "SoftTargets":
        """The same on `device`."""
        return SoftTargets(
            self.ids_NK.to(device),
            self.logprobs_NK.to(device),
            self.rest_N.to(device),
            self.temperature,
        )


class LearnedRow(Protocol):
    """What is asked of a row of tokens, as `posttrain.data.rows.TokenRow` says it."""

    @property
    def ids(self) -> tuple[int, ...]:
        """All tokens."""

    @property
    def start(self) -> int:
        """The first token that bears loss."""

    @property
    def silent(self) -> tuple[tuple[int, int], ...]:
        """Spans behind it that bear none, from and to (exclusive)."""


@dataclass(frozen=True)
class TaughtRow:
    """A row of text as a teacher read it, with what it says."""

    token_ids: tuple[int, ...]
    places: tuple[int, ...]
    """Of the learned tokens."""
    targets: SoftTargets


@dataclass(frozen=True)
class TaughtRows:
    """Several rows, all by one teacher."""

    rows: Sequence[TaughtRow]

    def take(self, kept: Sequence[int]) -> "TaughtRows":
        """Return the rows of these indices."""
        return TaughtRows([self.rows[index] for index in kept])

    def arrays(self) -> "list[npt.NDArray[Any]]":
        """Return what tells these targets from others, for a digest."""
        return [row.targets.logprobs_NK.numpy() for row in self.rows]

    def targets(self) -> SoftTargets:
        """Lay the targets of all rows behind each other."""
        import torch

        parts = [row.targets for row in self.rows]
        return SoftTargets(
            torch.cat([each.ids_NK for each in parts]),
            torch.cat([each.logprobs_NK for each in parts]),
            torch.cat([each.rest_N for each in parts]),
            parts[0].temperature,
        )

    def refuse_other_tokens(self, learned: Sequence[LearnedRow], *, where: str) -> None:
        """Refuse rows that the teacher has read as other tokens, or of which it says other ones.

        Args:
            learned: The same rows as they are learned.
            where: Name of the stage, for the message.

        Raises:
            UserError: A row differs.

        """
        for number, (row, read) in enumerate(zip(learned, self.rows, strict=True)):
            places = learned_places(row)
            if (tuple(row.ids), places) == (read.token_ids, read.places):
                continue
            raise UserError(
                f"{where}: the teacher has read row {number} as {len(read.token_ids)} tokens and"
                f" says something of {len(read.places)}, and here it is other tokens"
                f" ({len(row.ids)}, of which {len(places)} are learned); give the stage that"
                " asks the teacher the same policy, template and turns"
            )


def learned_places(row: LearnedRow) -> tuple[int, ...]:
    """Return the places of a row's tokens that bear loss.

    Args:
        row: Tokens, and which of them bear none.

    """
    silent = {place for begin, end in row.silent for place in range(begin, end)}
    return tuple(place for place in range(row.start, len(row.ids)) if place not in silent)


@dataclass(frozen=True)
class TeacherSaid:
    """Who was asked, and how; the same for all rows of a table."""

    teacher: str
    temperature: float
    top_k: int


def soft_targets_table(
    parents: Sequence[str], taught: Sequence[TaughtRow], said: TeacherSaid
) -> "pl.DataFrame":
    """Lay out a table.

    Args:
        parents: Id of each row of text.
        taught: The rows, in the same order.
        said: Who was asked.

    Returns:
        A frame with the columns of `soft_targets_schema`.

    """
    import polars as pl

    from posttrain.data.schemas import with_row_ids

    columns: Mapping[str, Any] = {
        "parents": [[parent] for parent in parents],
        "teacher": [said.teacher] * len(taught),
        "temperature": [said.temperature] * len(taught),
        "top_k": [said.top_k] * len(taught),
        "token_ids": [list(row.token_ids) for row in taught],
        "places": [list(row.places) for row in taught],
        # As arrays: a list of Python's numbers takes ten times the memory.
        "top_ids": [row.targets.ids_NK.flatten().int().numpy() for row in taught],
        "top_logprobs": [row.targets.logprobs_NK.flatten().numpy() for row in taught],
        "rest_logprobs": [row.targets.rest_N.numpy() for row in taught],
    }
    schema = soft_targets_schema()
    frame = pl.DataFrame(columns, schema={name: schema[name] for name in columns})
    named = frame.with_columns(row=pl.col("parents").list.join(","))
    return with_row_ids(named, _IDENTITY).select(schema.names())


def read_soft_targets(path: Path) -> dict[str, TaughtRow]:
    """Read a table.

    Args:
        path: A parquet file of the kind `SOFT_TARGETS`.

    Returns:
        The rows by the id of the row of text.

    Raises:
        UserError: It is no such table, or several teachers wrote it.

    """
    import torch

    from posttrain.data.tables import read_table

    frame = read_table(path, soft_targets_schema())
    said = frame.select("teacher", "temperature", "top_k").unique()
    if len(said) > 1:
        raise UserError(
            f"{path}: rows of several teachers, temperatures or top_k stand in one table; keep a"
            " table for each"
        )
    counts, top_k = frame["places"].list.len().to_list(), int(said["top_k"][0])
    temperature = float(said["temperature"][0])

    def split(column: str, *shape: int) -> "Sequence[Tensor]":
        flat = torch.from_numpy(frame[column].explode().to_numpy(writable=True))
        return torch.split(flat.view(-1, *shape), counts)

    parts = zip(
        frame["parents"].list.first(),
        frame["token_ids"],
        frame["places"],
        split("top_ids", top_k),
        split("top_logprobs", top_k),
        split("rest_logprobs"),
        strict=True,
    )
    return {
        parent: TaughtRow(
            tuple(ids), tuple(places), SoftTargets(ids_NK, logprobs_NK, rest_N, temperature)
        )
        for parent, ids, places, ids_NK, logprobs_NK, rest_N in parts
    }


def rows_with_targets(
    traces: "pl.DataFrame", path: Path, *, note: Callable[[str], None]
) -> "tuple[pl.DataFrame, TaughtRows]":
    """Keep the rows that a teacher has read.

    Args:
        traces: Rows of text, with their ids.
        path: A table of soft targets.
        note: Is told how many are left out.

    Returns:
        Those rows, and the same as the teacher read them.

    Raises:
        UserError: The teacher has read none of them.

    """
    import polars as pl

    taught = read_soft_targets(path)
    kept = traces.filter(pl.col("id").is_in(list(taught)))
    if kept.is_empty():
        raise UserError(
            f"{path}: the teacher has read none of the {len(traces)} rows; teach the rows that are"
            " learned from"
        )
    if len(kept) < len(traces):
        note(f"left out {len(traces) - len(kept)} rows that the teacher has not read")
    return kept, TaughtRows([taught[each] for each in kept["id"]])
