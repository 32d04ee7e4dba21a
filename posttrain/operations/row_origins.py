"""What is told of rows elsewhere: lines of files that they came from, and verdicts of judges."""

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import polars as pl

from posttrain.data.row_files import find_row
from posttrain.learning.rewards.port_tables import subject_of
from posttrain.provenance.lineage.graph import Graph, Node
from posttrain.provenance.lineage.names import Selected
from posttrain.provenance.lineage.places import from_root
from posttrain.provenance.lineage.queries import up
from posttrain.provenance.lineage.rows import Trace
from posttrain.provenance.lineage.tables import Table, Tables
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import digest_path

_PLACE = re.compile(r"(.+):([1-9][0-9]*)")
"""A parent that is a line of a file; ids of rows hold no colon."""


@dataclass(frozen=True)
class OriginLine:
    """A line of a file that rows were made of."""

    where: str
    """`FILE:LINE`, as the recipe names the file."""
    text: str
    """The line as it stands there; empty where it cannot be shown."""
    remark: str = ""
    """Why it cannot be shown, or may be another one by now."""


def ends_of_trace(
    tables: Tables, node: Selected, head: pl.DataFrame, found: Trace, *, most: int
) -> list[OriginLine]:
    """Look up the lines of files at which the way of some rows up ends.

    Args:
        tables: Of the project.
        node: The rows' table.
        head: The rows themselves, the first of them.
        found: Their trace.
        most: How many passages, and how many lines, and rows of every table on the way.

    Returns:
        Passages that problems brought along, then lines of files, each once.

    """
    frames = [head, *(step.sample(most) for step in found.steps)]
    places = [place for frame in frames for place in origin_places(frame)]
    if not places:
        return []
    problems = {place.rpartition(":")[0] for place in places}
    passages = passages_in([step.called(problems) for step in found.steps], places)
    known = {each.where for each in passages}
    places = [place for place in dict.fromkeys(places) if place not in known]
    graph = from_root(up(tables.ledger, node, limit=None), tables.ledger, tables.root)
    return [*passages[:most], *origin_lines(places[:most], graph, tables.root)]


def origin_places(frame: pl.DataFrame) -> Iterator[str]:
    """Find the lines that rows of a table name as their origin.

    Args:
        frame: Rows of problems, completions, pairs or the like.

    Yields:
        `FILE:LINE`, in the order of the rows, some perhaps twice.

    """
    if {"origin_file", "origin_line"} <= set(frame.columns):
        for file, line in frame.select("origin_file", "origin_line").iter_rows():
            if file:
                yield f"{file}:{line}"
    if "parents" in frame.columns:
        for parents in frame["parents"].to_list():
            yield from (each for each in parents or () if _PLACE.fullmatch(each))


def passages_in(frames: Sequence[pl.DataFrame], places: Iterable[str]) -> list[OriginLine]:
    """Look passages up that problems bring along, by the problem and the number of the passage.

    Args:
        frames: Rows on the way, those of the problems among them.
        places: `PROBLEM:N` among others, as `origin_places` gives them.

    Returns:
        The passages that are there, each once.

    """
    columns = {"id", "metadata"}
    told = {
        row["id"]: row["metadata"]
        for frame in frames
        if columns <= set(frame.columns)
        for row in frame.select(columns).iter_rows(named=True)
    }
    found = []
    for place in dict.fromkeys(places):
        problem, _, number = place.rpartition(":")
        passages = _passages(told.get(problem, "{}"))
        if int(number) <= len(passages):
            found.append(OriginLine(place, passages[int(number) - 1]))
    return found


def _passages(metadata: str) -> list[str]:
    """Those of a world's facts, whichever world it is."""
    facts = json.loads(metadata).values()
    return next((each["passages"] for each in facts if "passages" in (each or ())), [])


def origin_lines(places: Iterable[str], graph: Graph, root: Path) -> list[OriginLine]:
    """Look lines up in the files that they are of.

    Args:
        places: As `origin_places` gives them.
        graph: What the rows' table was made from: it knows the files and their digests.
        root: The project's root.

    Returns:
        Each line once.

    """
    sources = [node for node in graph.nodes.values() if node.type == "source"]
    same: dict[str, bool] = {}
    return [_line(each, sources, root, same) for each in dict.fromkeys(places)]


def _line(place: str, sources: list[Node], root: Path, same: dict[str, bool]) -> OriginLine:
    file, _, number = place.rpartition(":")
    found = _source_of(file, sources)
    if found is None:
        return OriginLine(place, "", "the ledger knows no such file among what it was made from")
    node, inner = found
    path = root / node.name
    try:
        if node.id not in same:
            same[node.id] = digest_path(path).sha256 == node.facts["digest"]
        text = find_row(path / inner, int(number))
    except (UserError, OSError) as error:
        return OriginLine(place, "", f"cannot be shown: {error}")
    changed = "" if same[node.id] else "the file has changed since; this is its line of today"
    return OriginLine(place, text, changed)


def _source_of(file: str, sources: list[Node]) -> tuple[Node, PurePosixPath] | None:
    """The file or folder that a name in a recipe means, and what lies inside of it."""
    parts = [each for each in PurePosixPath(posixpath.normpath(file)).parts if each != ".."]
    for count in range(len(parts), 0, -1):
        tail = PurePosixPath(*parts[:count]).parts
        for node in sources:
            if PurePosixPath(node.name).parts[-count:] == tail or node.name == "/".join(tail):
                return node, PurePosixPath(*parts[count:])
    return None


def verdicts_on(
    tables: Iterable[Table], *, problem_id: str, text: str, row_id: str
) -> list[dict[str, object]]:
    """Find what was said of one answer.

    Args:
        tables: Of verdicts.
        problem_id: Of the problem that is answered.
        text: The answer.
        row_id: Of its row, which a table may name in place of the answer.

    Returns:
        Rows of VERDICTS, in the order of the tables; each verdict once.

    """
    subjects = [subject_of(problem_id, text), row_id]
    found: dict[str, dict[str, object]] = {}
    for table in tables:
        rows = table.rows().filter(pl.col("subject").is_in(subjects)).collect()
        found |= {row["id"]: row for row in rows.iter_rows(named=True)}
    return list(found.values())
