"""Row-level lineage: follow ids and parents through tables, as polars joins over parquet."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Literal

import polars as pl

from posttrain.errors import UserError, nearest
from posttrain.lineage.artifacts import Finder
from posttrain.lineage.graph import Graph, Node
from posttrain.lineage.names import Selected
from posttrain.lineage.queries import down, up
from posttrain.pipeline.digest import StatCache
from posttrain.pipeline.ledger import Ledger
from posttrain.pipeline.ledger.location import STATE_DIR

Mode = Literal["up", "down", "family"]


@dataclass(frozen=True)
class Table:
    """One parquet file and the stage run that made it (None for a file from outside)."""

    id: str
    path: str
    file: Path
    maker: Node | None = None

    def rows(self, predicate: str | None = None) -> pl.LazyFrame:
        """The rows for which an SQL expression holds."""
        frame = pl.scan_parquet(self.file)
        return frame if predicate is None else frame.filter(_expression(predicate, self))

    def matching(self, predicate: str) -> int:
        """Number of rows for which an SQL expression holds."""
        return int(collected(self.rows(predicate).select(pl.len()), self).item())

    def links(self) -> pl.DataFrame:
        """`id` of each row, once, with its `parents`; without rows where the table has no ids."""
        if not {"id", "parents"} <= set(pl.read_parquet_schema(self.file)):
            return pl.DataFrame(schema={"id": pl.String, "parents": pl.List(pl.String)})
        return pl.read_parquet(self.file, columns=["id", "parents"])


@dataclass(frozen=True)
class Step:
    """One table on the way: `links` pairs a chosen row's id (`root`) with an `id` of this table."""

    table: Table
    links: pl.DataFrame

    def sample(self, count: int) -> pl.DataFrame:
        """The first rows of this table that a chosen row leads to, in the table's order."""
        wanted = self.links.select("id").unique()
        frame = self.table.rows().join(wanted.lazy(), on="id", how="semi", maintain_order="left")
        return frame.head(count).collect()


@dataclass(frozen=True)
class Trace:
    """Steps from nearest to farthest, and the paths of tables whose bytes are gone."""

    steps: tuple[Step, ...]
    gone: tuple[str, ...]

    def restricted_to(self, kept: pl.DataFrame) -> "Trace":
        """Only what the rows in `kept` (column `root`) lead to."""
        steps = [
            Step(each.table, each.links.join(kept, on="root", how="semi")) for each in self.steps
        ]
        return Trace(tuple(each for each in steps if each.links.height), self.gone)


@dataclass(frozen=True)
class Tables:
    """Tables of the ledger whose bytes can be found."""

    ledger: Ledger
    finder: Finder

    def of_node(self, node: Selected) -> Table:
        """The table that a node is."""
        graph = up(self.ledger, node)
        found = graph.nodes[node.id]
        if found.kind != "artifact" or not found.name.endswith(".parquet"):
            raise UserError(f"{found.name} is not a table; name an artifact that is a parquet file")
        table = self._open(graph, found)
        if table is None:
            raise UserError(f"the bytes of {found.name} are gone; get them back with: dvc pull")
        return table

    def along(self, graph: Graph) -> tuple[list[Table], list[str]]:
        """Tables of a graph in the order of making, and the paths of those that are gone."""
        found, gone = [], []
        for name in _in_order(graph):
            node = graph.nodes[name]
            if node.kind != "artifact" or not node.name.endswith(".parquet"):
                continue
            table = self._open(graph, node)
            if table is None:
                gone.append(node.name)
            else:
                found.append(table)
        return found, gone

    def _open(self, graph: Graph, node: Node) -> Table | None:
        md5 = node.facts["md5"]
        file = self.finder.find(node.name, str(node.facts["digest"]), str(md5) if md5 else None)
        makers = [graph.nodes[edge.source] for edge in graph.edges if edge.target == node.id]
        return Table(node.id, node.name, file, makers[0] if makers else None) if file else None


def open_tables(ledger: Ledger, root: Path) -> Tables:
    """Tables of the project at `root`."""
    return Tables(ledger, Finder(root, StatCache.load(root / STATE_DIR / "digests.json")))


def trace(tables: Tables, node: Selected, chosen: pl.DataFrame, *, mode: Mode = "up") -> Trace:
    """Follow the rows of `chosen` (columns id, parents), which belong to the table `node`.

    up: the same rows in earlier tables, their parents, and theirs. down: rows of later tables that
    are the same or descend from them. family: up, and every row that upstream tables made from
    those ancestors: the siblings on which a policy was trained, say.
    """
    pairs = _start(chosen)
    if mode == "down":
        later, gone = tables.along(down(tables.ledger, node, limit=None))
        return Trace(
            tuple(_descend([each for each in later if each.id != node.id], pairs)), tuple(gone)
        )
    earlier, gone = tables.along(up(tables.ledger, node, limit=None))
    nearest_first = [each for each in reversed(earlier) if each.id != node.id]
    steps = list(_ascend(nearest_first, pairs, chosen))
    if mode == "family":
        ancestors = pl.concat([pairs, *(step.links for step in steps)]).unique()
        steps = list(_descend(nearest_first[::-1], ancestors))[::-1]
    return Trace(tuple(steps), tuple(gone))


def cleared_tables(tables: Tables, node: Selected, predicate: str) -> list[str]:
    """Digests of later tables without a row that is, or descends from, one that fits `predicate`.

    Only a table all of whose bad sources are tables can be cleared: what a model trained on bad
    rows wrote has no bad row among its parents, and is bad all the same.
    """
    graph = down(tables.ledger, node, limit=None)
    table = tables.of_node(node)
    bad = {node.id: collected(table.rows(predicate).select("id"), table)}
    later = {each.id: each for each in tables.along(graph)[0]}
    sources = _sources(graph)
    spoiled, cleared = {node.id}, []
    for name in _in_order(graph):
        reasons = sources.get(name, set()) & spoiled
        if not reasons:
            continue
        if name in later and all(each in bad for each in reasons):
            known = pl.concat([bad[each] for each in sorted(reasons)]).unique()
            links = _descending(later[name]).join(
                known.rename({"id": "link"}), on="link", how="semi"
            )
            if not links.height and later[name].links().height:
                cleared.append(str(graph.nodes[name].facts["digest"]))
                continue
            bad[name] = links.select("id").unique()
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


def _in_order(graph: Graph) -> list[str]:
    """Nodes so that each comes after what it was made from."""
    sorter: TopologicalSorter[str] = TopologicalSorter({name: set() for name in graph.nodes})
    for edge in graph.edges:
        sorter.add(edge.target, edge.source)
    return list(sorter.static_order())


def came_from(steps: Sequence[Step], name: str, predicate: str) -> pl.DataFrame:
    """Ids (column `root`) of chosen rows with an ancestor in table `name` that fits `predicate`."""
    fitting = [step for step in steps if _is_called(step.table, name)]
    if not fitting:
        known = [step.table.path for step in steps]
        raise UserError(f"no row leads to a table '{name}'{nearest(name, known)}")
    frames = []
    for step in fitting:
        ids = collected(step.table.rows(predicate).select("id"), step.table)
        frames.append(step.links.join(ids.unique(), on="id", how="semi").select("root"))
    return pl.concat(frames).unique()


def collected(frame: pl.LazyFrame, table: Table) -> pl.DataFrame:
    """Run a query, turning a mistake in the user's expression into a sentence."""
    try:
        return frame.collect()
    except pl.exceptions.ColumnNotFoundError as error:
        wrong = str(error).split('"')[1] if '"' in str(error) else str(error).split("\n")[0]
        columns = list(pl.read_parquet_schema(table.file))
        raise UserError(
            f"{table.path} has no column '{wrong}'{nearest(wrong, columns)} "
            f"(it has {', '.join(columns)})"
        ) from None
    except pl.exceptions.PolarsError as error:
        first = str(error).splitlines()[0]
        raise UserError(f"the expression does not fit {table.path}: {first}") from None


def _expression(predicate: str, table: Table) -> pl.Expr:
    try:
        return pl.sql_expr(predicate)
    except pl.exceptions.PolarsError as error:
        first = str(error).splitlines()[0]
        raise UserError(f"'{predicate}' is no SQL expression over {table.path}: {first}") from None


def _start(chosen: pl.DataFrame) -> pl.DataFrame:
    """A row's own id links it to itself: filters pass rows on under the id that they have."""
    return chosen.select(root="id", id="id").unique()


def _ascend(tables: Sequence[Table], pairs: pl.DataFrame, chosen: pl.DataFrame) -> Iterator[Step]:
    pairs = pl.concat([pairs, _parents(chosen.select(pl.col("id").alias("root"), "parents"))])
    pairs = pairs.unique()
    for table in tables:
        links = table.links().unique("id", maintain_order=True)
        met = pairs.join(links, on="id", how="inner")
        if met.height:
            pairs = pl.concat([pairs, _parents(met.select("root", "parents"))]).unique()
            yield Step(table, met.select("root", "id").sort("root", "id"))


def _descend(tables: Sequence[Table], pairs: pl.DataFrame) -> Iterator[Step]:
    for table in tables:
        reached = _descending(table)
        met = pairs.rename({"id": "link"}).join(reached, on="link", how="inner")
        met = met.select("root", "id").unique()
        if met.height:
            pairs = pl.concat([pairs, met]).unique()
            yield Step(table, met.sort("root", "id"))


def _descending(table: Table) -> pl.DataFrame:
    """Rows (`id`) with every id (`link`) that they descend from: their own and their parents'."""
    links = table.links()
    own = links.select("id", link="id")
    made = links.select("id", link="parents").explode("link").drop_nulls()
    return pl.concat([own, made]).unique()


def _parents(met: pl.DataFrame) -> pl.DataFrame:
    return met.explode("parents").drop_nulls().select("root", pl.col("parents").alias("id"))


def _is_called(table: Table, name: str) -> bool:
    """By path, by the stage that made it, or by `stage.output`."""
    stage = table.maker.name if table.maker else ""
    return name in (table.path, stage, f"{stage}.{Path(table.path).stem}", table.id)
