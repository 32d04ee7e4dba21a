"""The tables that a stage's ports bring to its reward: read once, when they are first asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import polars as pl

from posttrain.data.schemas import COMPLETIONS, VERDICTS, row_id
from posttrain.data.tables import read_table
from posttrain.stage.errors import UserError, nearest

TRACES, VERDICTS_PORT = "traces", "verdicts"
"""Ports that take one table each."""


def subject_of(problem_id: str, text: str) -> str:
    """Name an answer to a problem, as rows of VERDICTS do.

    Args:
        problem_id: Of the problem.
        text: The answer.

    Returns:
        16 hexadecimal characters.

    """
    return row_id(problem_id, text)


class StoredSolution(NamedTuple):
    """A worked answer that somebody gave."""

    id: str
    """Of its row."""
    text: str


@dataclass
class PortTables:
    """Tables by the port that brings them."""

    paths: Mapping[str, Path] = field(default_factory=dict)
    """Files and folders by port."""
    _solutions: Mapping[str, tuple[StoredSolution, ...]] | None = None
    _verdicts: dict[tuple[str, str | None], Mapping[str, float | None]] = field(
        default_factory=dict
    )

    def traces(self) -> Mapping[str, tuple[str, ...]]:
        """Return the solutions of each problem, by its id: all that were not found wrong."""
        return {
            name: tuple(dict.fromkeys(each.text for each in found))
            for name, found in self.solutions().items()
        }

    def solutions(self) -> Mapping[str, tuple[StoredSolution, ...]]:
        """Return the same with the ids of their rows, in the table's order."""
        if self._solutions is None:
            table = read_table(self._path(TRACES), COMPLETIONS)
            kept = table.filter(pl.col("verified").fill_null(value=True))
            found: dict[str, list[StoredSolution]] = {}
            for name, *row in kept.select("problem_id", "id", "text").iter_rows():
                found.setdefault(name, []).append(StoredSolution(*row))
            self._solutions = {name: tuple(each) for name, each in found.items()}
        return self._solutions

    def verdicts(self, component: str, judge: str | None) -> Mapping[str, float | None]:
        """Return what one judge said of answers, by `subject_of` them.

        Args:
            component: Name under which the verdicts were stored.
            judge: Whose; null where no answer has several judges by that name.

        Returns:
            The mean over the judge's draws that could be judged; None where none could.

        Raises:
            UserError: The table has none of that name, or of that judge, or several judges of one
                answer.

        """
        if (component, judge) not in self._verdicts:
            self._verdicts[component, judge] = self._read(component, judge)
        return self._verdicts[component, judge]

    def _read(self, component: str, judge: str | None) -> Mapping[str, float | None]:
        path = self._path(VERDICTS_PORT)
        table = read_table(path, VERDICTS)
        named = table.filter(component=component)
        if named.is_empty():
            hint = nearest(component, sorted(set(table["component"])))
            raise UserError(f"{path}: there are no verdicts called '{component}'{hint}")
        judges = sorted(set(named["judge"]))
        several = named.filter(pl.col("judge").n_unique().over("subject") > 1)
        if judge is None and len(several):
            both = sorted(set(several["judge"]))
            raise UserError(
                f"{path}: verdicts called '{component}' on one answer are of {len(both)} judges"
                f" ({', '.join(both[:3])}); set the component's `judge` to one"
            )
        if judge is not None and judge not in judges:
            hint = nearest(judge, judges)
            raise UserError(f"{path}: judge {judge} gave no verdict called '{component}'{hint}")
        chosen = named if judge is None else named.filter(judge=judge)
        found = chosen.group_by("subject", maintain_order=True).agg(pl.col("score").drop_nulls())
        return {name: fmean(scores) if scores else None for name, scores in found.iter_rows()}

    def _path(self, port: str) -> Path:
        if port not in self.paths:
            raise UserError(f"rl: a part asks for the port {port}; connect it under `inputs`")
        return self.paths[port]
