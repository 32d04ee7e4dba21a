"""Rows that somebody brings, from several files: converted, weighed, capped, parted."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal

import polars as pl

from posttrain.data.brought_files import BroughtFile
from posttrain.data.formats.forms import Unfit
from posttrain.data.row_files import file_rows
from posttrain.data.schemas import DROPPED, row_id
from posttrain.data.sources.table import falls_in_heldout
from posttrain.data.wanted_rows import Taken, Wanted
from posttrain.stage.errors import UserError


@dataclass(frozen=True)
class BroughtRow(Generic[Taken]):
    """What a row gave, and where it stood."""

    source: str
    where: str
    taken: Taken
    side: Literal["train", "heldout"]
    weight: float


@dataclass(frozen=True)
class UnfitRow:
    """A row that is left out, and why."""

    source: str
    where: str
    reason: str
    beside: str = ""
    """The row that it says again, of a duplicate."""


@dataclass
class BroughtRows(Generic[Taken]):
    """What several files gave: rows to use, and why others are of no use."""

    rows: list[BroughtRow[Taken]] = field(default_factory=list)
    unfit: list[UnfitRow] = field(default_factory=list)
    readings: dict[str, str] = field(default_factory=dict)
    """How each source was read."""

    def dropped(self) -> pl.DataFrame:
        """Lay out what was left out: a DROPPED table with `source`; parents are the places."""
        rows = [
            {
                "id": row_id(each.source, each.where, str(number)),
                "parents": [each.where, *([each.beside] if each.beside else [])],
                "reason": each.reason,
                "source": each.source,
            }
            for number, each in enumerate(self.unfit)
        ]
        return pl.DataFrame(rows, schema={**DROPPED, "source": pl.String})

    def counts(self) -> dict[str, object]:
        """Count the rows by source and side, and by reason those left out, for the report."""
        sides: dict[str, dict[str, int]] = {name: {} for name in self.readings}
        for row in self.rows:
            known = sides[row.source]
            known[row.side] = known.get(row.side, 0) + 1
        left_out = dict(Counter(each.reason for each in self.unfit))
        return {"rows": sides, "read_as": self.readings, "left_out": left_out}

    def told_of_sides(self) -> str:
        """Say how many rows are held out: by content, so that few rows give more or less."""
        held = sum(row.side == "heldout" for row in self.rows)
        return f"{held} of {len(self.rows)} rows are held out"

    def reasons(self) -> str:
        """Say how many rows are left out for each reason, the most frequent first."""
        counted = Counter(each.reason for each in self.unfit).most_common()
        return "; ".join(f"{count} {reason}" for reason, count in counted)


def bring(
    files: Sequence[BroughtFile],
    inputs: Mapping[str, Path],
    wanted: Wanted[Taken],
    *,
    heldout_fraction: float,
) -> BroughtRows[Taken]:
    """Read all files, and decide on which side each row is.

    A prompt is on one side alone, whichever files it stands in: one that a file for `heldout` has
    is not trained on.

    Args:
        files: As the recipe has them.
        inputs: The files, by `files.NAME`.
        wanted: What is taken of a row.
        heldout_fraction: Share of the prompts of parted files that is held out, by content. Where
            that comes to none or all, one prompt is.

    Returns:
        The rows in the order of the files, and what was left out.

    Raises:
        UserError: A file or a row cannot be read, or nothing is left on a side.

    """
    found: BroughtRows[Taken] = BroughtRows()
    known: dict[str, str] = {}
    for file in files:
        path = inputs[f"files.{file.called()}"]
        taken = []
        for where, each in _rows(file, path, wanted, found):
            content = wanted.content(each)
            if content in known:
                found.unfit.append(UnfitRow(file.called(), where, "duplicate", known[content]))
                continue
            known[content] = where
            taken.append((where, each))
        for where, each in _capped(taken, file, wanted, found):
            row = BroughtRow(file.called(), where, each, "train", file.weight)
            found.rows.append(row)
    found.rows = _parted(files, found, wanted, heldout_fraction)
    return found


def _rows(
    file: BroughtFile, path: Path, wanted: Wanted[Taken], found: BroughtRows[Taken]
) -> Iterator[tuple[str, Taken]]:
    """What the rows of one file give, with their places."""
    name = file.called()
    reading = file.reading(path)
    wanted.check(reading, file.path)
    found.readings[name] = str(reading)
    for row in file_rows(path, name=file.path, split=file.split):
        forms = list(reading.format.convert(row.record, row.where))
        if not forms:
            found.unfit.append(UnfitRow(name, row.where, "there is nothing in it to learn"))
        for form in forms:
            try:
                yield row.where, wanted.take(form)
            except Unfit as reason:
                found.unfit.append(UnfitRow(name, row.where, str(reason)))


def _capped(
    taken: list[tuple[str, Taken]],
    file: BroughtFile,
    wanted: Wanted[Taken],
    found: BroughtRows[Taken],
) -> list[tuple[str, Taken]]:
    """The rows that the source's limit leaves, in their order."""
    if file.limit is None or len(taken) <= file.limit:
        return taken
    ranked = sorted(range(len(taken)), key=lambda index: row_id(wanted.content(taken[index][1])))
    kept = set(ranked[: file.limit])
    for index, (where, _) in enumerate(taken):
        if index not in kept:
            found.unfit.append(UnfitRow(file.called(), where, f"over the limit of {file.limit}"))
    return [each for index, each in enumerate(taken) if index in kept]


def _parted(
    files: Sequence[BroughtFile],
    found: BroughtRows[Taken],
    wanted: Wanted[Taken],
    fraction: float,
) -> list[BroughtRow[Taken]]:
    """The rows with their sides."""
    uses = {file.called(): file.use for file in files}
    asked = [wanted.asked(row.taken) for row in found.rows]
    held = {p for row, p in zip(found.rows, asked, strict=True) if uses[row.source] == "heldout"}
    parted = [p for row, p in zip(found.rows, asked, strict=True) if uses[row.source] == "parted"]
    fixed = {p for row, p in zip(found.rows, asked, strict=True) if uses[row.source] == "train"}
    free = sorted({*parted} - held - fixed, key=row_id)
    drawn = {prompt for prompt in free if falls_in_heldout(prompt, fraction)}
    if free and not held | drawn:
        drawn = {free[0]}
    if drawn and not (fixed | {*free}) - held - drawn:
        drawn -= {free[-1]}
    rows = []
    for row, prompt in zip(found.rows, asked, strict=True):
        if uses[row.source] == "train" and prompt in held:
            found.unfit.append(UnfitRow(row.source, row.where, "its prompt is held out"))
            continue
        side: Literal["train", "heldout"] = "heldout" if prompt in held | drawn else "train"
        rows.append(BroughtRow(row.source, row.where, row.taken, side, row.weight))
    _refuse_empty_sides(rows, found)
    return rows


def _refuse_empty_sides(rows: Sequence[BroughtRow[Taken]], found: BroughtRows[Taken]) -> None:
    for side, remedy in (("train", "to learn from"), ("heldout", "to hold out")):
        if not any(row.side == side for row in rows):
            some = next((f" ({each.where}: {each.reason})" for each in found.unfit), "")
            raise UserError(
                f"{', '.join(found.readings)}: there is no row {remedy}, and {len(found.unfit)}"
                f" were left out{some}; give files with more prompts, or change `use`"
            )
