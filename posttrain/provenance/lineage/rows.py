"""Row-level lineage: follow ids and parents through tables of any size, one column at a time."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl

from posttrain.provenance.lineage.graph import Graph
from posttrain.provenance.lineage.names import Selected
from posttrain.provenance.lineage.queries import down, up
from posttrain.provenance.lineage.tables import Links, Table, Tables, making_order
from posttrain.stage.errors import UserError, nearest

Mode = Literal["up", "down", "family"]


@dataclass(frozen=True)
class TraceStep:
    """One table on the way, and the numbers of its rows that were reached."""

    table: Table
    numbers: pl.Series

    def sample(self, count: int) -> pl.DataFrame:
        """The first reached rows."""
        return self.table.take(self.numbers.head(count)).collect()

    def called(self, ids: Collection[str]) -> pl.DataFrame:
        """The reached rows with one of these ids; none of a table without ids."""
        rows = self.table.take(self.numbers)
        if "id" not in rows.collect_schema():
            return rows.head(0).collect()
        return rows.filter(pl.col("id").is_in(list(ids))).collect()


@dataclass(frozen=True)
class Trace:
    """Steps from nearest to farthest, and the paths of tables whose bytes are gone."""

    steps: tuple[TraceStep, ...]
    gone: tuple[str, ...]


def trace(tables: Tables, node: Selected, chosen: pl.Series, *, mode: Mode = "up") -> Trace:
    """Follow some rows of a table to earlier or later tables.

    Args:
        tables: Reads the tables that the ledger knows.
        node: The table.
        chosen: Numbers of its rows.
        mode: up: the same rows in earlier tables, their parents, and theirs. down: rows of later
            tables that are the same or descend from them. family: up, and every row that upstream
            tables made from those ancestors: the siblings on which a policy was trained, say.

    Returns:
        The rows of each table on the way, and the tables whose bytes are gone.

    """
    links = tables.of_node(node).links()
    if mode == "down":
        found, gone = tables.along(down(tables.ledger, node, limit=None))
        later = [each for each in found if each.id != node.id]
        return Trace(tuple(_descend(later, links.ids.gather(chosen))[0]), tuple(gone))
    found, gone = tables.along(up(tables.ledger, node, limit=None))
    nearest_first = [each for each in reversed(found) if each.id != node.id]
    steps, reached = _ascend(nearest_first, links, chosen)
    if mode == "family":
        steps = _descend(nearest_first[::-1], reached)[0][::-1]
    return Trace(tuple(steps), tuple(gone))


def came_from(
    steps: Sequence[TraceStep], table: Table, chosen: pl.Series, *, origin: str, predicate: str
) -> pl.Series:
    """Keep the rows that have an ancestor in a given table that fits a predicate.

    Args:
        steps: The upward trace of the rows.
        table: The table that they are of.
        chosen: Numbers of the rows.
        origin: Name or path of the table of ancestors.
        predicate: SQL condition on its rows.

    Returns:
        Those of the numbers whose rows descend from a fitting one.

    Raises:
        UserError: No row leads to such a table, or the condition cannot be read.

    """
    position = next((i for i, step in enumerate(steps) if _is_called(step.table, origin)), None)
    if position is None:
        known = [step.table.path for step in steps]
        raise UserError(f"no row leads to a table '{origin}'{nearest(origin, known)}")
    source = steps[position].table
    fitting = source.links().ids.gather(source.numbers(predicate))
    _, good = _descend([step.table for step in reversed(steps[:position])], fitting)
    return chosen.filter(_is_descendant(table.links(), good).gather(chosen))


def cleared_tables(tables: Tables, node: Selected, predicate: str) -> list[str]:
    """Find later tables without a row that is, or descends from, one that fits a predicate.

    Only a table all of whose bad sources are tables can be cleared: what a model trained on bad
    rows wrote has no bad row among its parents, and is bad all the same.

    Args:
        tables: Reads the tables that the ledger knows.
        node: The table with bad rows.
        predicate: SQL condition that the bad ones fit.

    Returns:
        Digests of the tables that are clear of them.

    """
    graph = down(tables.ledger, node, limit=None)
    table = tables.of_node(node)
    bad = {node.id: table.links().ids.gather(table.numbers(predicate))}
    later = {each.id: each for each in tables.along(graph)[0]}
    sources = _sources(graph)
    spoiled, cleared = {node.id}, []
    for name in making_order(graph):
        reasons = sources.get(name, set()) & spoiled
        if not reasons or name == node.id:
            continue
        if name in later and all(each in bad for each in reasons):
            links = later[name].links()
            known = pl.concat([bad[each] for each in sorted(reasons)])
            bad[name] = links.ids.filter(_is_descendant(links, known))
            if links.ids.len() and not bad[name].len():
                cleared.append(str(graph.nodes[name].facts["digest"]))
                continue
        spoiled.add(name)
    return cleared


def _sources(graph: Graph) -> dict[str, set[str]]:
    """For each artifact, the artifacts that its makers read."""
    before = graph.before()
    return {
        name: {read.source for made in before.get(name, ()) for read in before.get(made.source, ())}
        for name, node in graph.nodes.items()
        if node.kind == "artifact"
    }


def _ascend(
    tables: Sequence[Table], links: Links, chosen: pl.Series
) -> tuple[list[TraceStep], pl.Series]:
    """Steps upwards, nearest first, and every id that was met."""
    reached = [_and_parents(links, _mask(links.ids.len(), chosen))]
    steps = []
    for table in tables:
        links = table.links()
        met = _among(links.ids, pl.concat(reached))
        if met.any():
            steps.append(TraceStep(table, met.arg_true()))
            reached.append(_and_parents(links, met))
    return steps, pl.concat(reached)


def _descend(tables: Sequence[Table], start: pl.Series) -> tuple[list[TraceStep], pl.Series]:
    """Steps downwards in the order of making, and every id that was met."""
    steps, reached = [], [start]
    for table in tables:
        links = table.links()
        met = _is_descendant(links, pl.concat(reached))
        if met.any():
            steps.append(TraceStep(table, met.arg_true()))
            reached.append(links.ids.filter(met))
    return steps, pl.concat(reached)


def _and_parents(links: Links, met: pl.Series) -> pl.Series:
    """Ids of the rows that were met, and of their parents.

    A row's own id leads on as well: filters pass rows on under the id that they have.
    """
    return pl.concat([links.ids.filter(met), links.parents.filter(met.gather(links.children))])


def _is_descendant(links: Links, ancestors: pl.Series) -> pl.Series:
    """Per row: is it one of `ancestors`, or is one of them its parent?"""
    children = links.children.filter(_among(links.parents, ancestors))
    return _among(links.ids, ancestors) | _mask(links.ids.len(), children.unique())


def _mask(num_rows: int, numbers: pl.Series) -> pl.Series:
    """Per row: is its number one of `numbers`?"""
    return pl.int_range(num_rows, dtype=pl.UInt32, eager=True).is_in(numbers.implode())


def _among(ids: pl.Series, wanted: pl.Series) -> pl.Series:
    return ids.is_in(wanted.implode())


def _is_called(table: Table, name: str) -> bool:
    """By path, by the stage that made it, or by `stage.output`."""
    stage = table.maker.name if table.maker else ""
    in_recipe = re.sub("^recipes/[^/]+/", "", table.path)
    return name in (table.path, in_recipe, stage, f"{stage}.{Path(table.path).stem}", table.id)
