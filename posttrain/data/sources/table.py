"""Problems from tables that someone else made, with the solutions that the tables have."""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator

from posttrain.data.sources.base import Side, Source, SourceRequest, SourceRows
from posttrain.data.sources.columns import (
    FIELDS,
    ProblemRow,
    parameters_of,
    parse_row,
    unknown_field,
)
from posttrain.data.teachers.base import Solution, Teacher
from posttrain.stage.errors import UserError
from posttrain.stage.slots import InSlot, Part

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

_LOOKED_AT = 20_000
"""Rows among which a plan looks for a solution; of a longer table nothing is certain."""


class TableSource(Source):
    """Rows of a table whose columns are mapped to those of problems."""

    use: Literal["parted", "train", "heldout"] = "parted"
    """`train` and `heldout` keep the table whole; `parted` holds out a share of its problems."""
    columns: Mapping[str, str] = Field(default_factory=dict)
    """Our name -> the table's: prompt and answer, optionally solution, difficulty, weight (of the
    solution in training), turns (the conversation before the prompt) and tools."""
    verifier: Annotated[Part, InSlot("verifier")] = Field(default="numeric", validate_default=True)
    """What scores answers: a kind's name, or a mapping with the kind and its parameters."""
    parameters: Mapping[str, str] = Field(default_factory=dict)
    """Parameter of the verifier -> the table's column that states it for each row."""

    @field_validator("columns")
    @classmethod
    def _known_columns(cls, columns: Mapping[str, str]) -> Mapping[str, str]:
        for name in columns:
            if name not in FIELDS:
                raise ValueError(f"it maps '{name}', {unknown_field(name)}")
        return columns

    @property
    def only_heldout(self) -> bool:
        """True for `use: heldout`."""
        return self.use == "heldout"

    def origin(self) -> str:
        """Name the table as the recipe does: what rows keep as their file."""
        raise NotImplementedError

    def where(self, place: Path | str, number: int) -> str:
        """Name a row of the table, for errors."""
        return f"{place}, row {number}"

    def records(self, request: SourceRequest) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Read every row of the table.

        Args:
            request: Where the table is.

        Yields:
            The number of the row's line, from 1; and its values by the table's own names.

        Raises:
            UserError: The table, or a row of it, cannot be read.

        """
        raise NotImplementedError

    def read(self, request: SourceRequest) -> SourceRows:
        """Read, check and part the table; see `Source.read`."""
        rows, num_rows = SourceRows(), 0
        for row, problem in self._problems(request):
            num_rows += 1
            side = self._side(row.prompt, request)
            if side == "heldout":
                rows.heldout.append(problem)
            elif side == "train":
                rows.train.append(problem)
                if row.solution:
                    generator = f"file:{self.name}"
                    rows.solutions.append(Solution(problem, row.solution, generator, row.weight))
        if not num_rows:
            raise UserError(f"{request.path or self.origin()}: there are no rows in it")
        return rows

    def without_solutions(self, teacher: Teacher, path: Path | None) -> str:
        """Look for the first solution in a local table; see `TellsSolutions`."""
        if teacher.FOR_FILES:
            return ""
        if not self.only_heldout:
            if path is None or not path.exists():
                return ""
            column = self.columns.get("solution", "solution")
            records = islice(self.records(_to_look_at(path)), _LOOKED_AT + 1)
            looked_at = 0
            for _, record in records:
                looked_at += 1
                if str(record.get(column) or "").strip():
                    return ""
            # An empty table has a complaint of its own.
            if not 0 < looked_at <= _LOOKED_AT:
                return ""
        return "map a column to solution in a source's columns"

    def first_problems(self, request: SourceRequest, most: int) -> "list[Problem]":
        """Read the first rows of a local table; see `Source.first_problems`."""
        if request.path is None or not request.path.exists():
            return []
        return [problem for _, problem in islice(self._problems(request), most)]

    def _problems(self, request: SourceRequest) -> "Iterator[tuple[ProblemRow, Problem]]":
        place = request.path or self.origin()
        answered = getattr(self.verifier, "REFERENCE", True)
        for number, record in self.records(request):
            where = self.where(place, number)
            row = parse_row(where, record, self.columns, answered=answered)
            own = parameters_of(self.verifier, record, self.parameters, where=where)
            yield row, self._problem(row, number, request, own)

    def _problem(
        self, row: ProblemRow, number: int, request: SourceRequest, own: Mapping[str, Any]
    ) -> "Problem":
        from posttrain.data.schemas import Problem

        return Problem(
            source=self.name,
            prompt=row.prompt,
            answer=request.answer_of(row.answer),
            difficulty=row.difficulty,
            verifier="",
            metadata=json.dumps({self.verifier.kind: own} if own else {}),
            origin_file=self.origin(),
            origin_line=number,
            context=row.context.written(),
        )

    def _side(self, prompt: str, request: SourceRequest) -> Side | None:
        """Where a prompt goes; one that an earlier source had stays on its side.

        A table for training alone loses the prompts that are held out.
        """
        known = request.sides.get(prompt)
        if self.use == "train":
            return None if known == "heldout" else "train"
        if self.use == "heldout":
            return "heldout"
        if known is not None:
            return known
        return "heldout" if falls_in_heldout(prompt, request.heldout_fraction) else "train"


def _to_look_at(path: Path) -> SourceRequest:
    return SourceRequest(
        seed=0, num_problems=1, num_heldout=1, heldout_fraction=1.0, scratch=Path(), path=path
    )


class FileSource(TableSource):
    """One local file."""

    path: str = Field(min_length=1)
    """Local file, relative to the recipe."""

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        if not name.strip() or any(each in "/\\" or not each.isprintable() for each in name):
            raise ValueError(f"a source's name is a word, without slashes, got {name!r}; rename it")
        return name

    def local_path(self) -> str | None:
        """Name the file."""
        return self.path

    def origin(self) -> str:
        """Name the file."""
        return self.path

    def file(self, request: SourceRequest) -> Path:
        """Find the file.

        Args:
            request: Where it is.

        Returns:
            Its path.

        Raises:
            UserError: There is no such file.

        """
        path = request.path or Path(self.path)
        if not path.is_file():
            wrong = "a directory, and a file is needed here" if path.is_dir() else "not there"
            raise UserError(f"{path} is {wrong}; give the path of one file")
        return path


def falls_in_heldout(prompt: str, fraction: float) -> bool:
    """Tell by its hash if a prompt is among the `fraction` of all prompts that is held out."""
    from posttrain.data.schemas import row_id

    digest = row_id(prompt)
    return int(digest, 16) < fraction * 16.0 ** len(digest)
