"""Tables of the ledger as parquet files that can be queried, with mistakes said in a sentence."""

from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from posttrain.provenance.ledger import Ledger
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.provenance.lineage.graph import Graph, Node, in_order
from posttrain.provenance.lineage.names import Selected
from posttrain.provenance.lineage.places import from_root
from posttrain.provenance.lineage.queries import up
from posttrain.stage.errors import UserError, first_line, nearest

# No column of a real table is called that.
_NUMBER = "\0row"


@dataclass(frozen=True)
class Links:
    """Ids of a table's rows and of their parents, as 64-bit hashes.

    `ids` has one entry per row; `children` and `parents` one per parent: the row that has it, and
    its id. Row ids are 64 bits of a hash themselves, so hashing them again risks nothing new, and
    sets of integers are five times as fast as sets of strings.
    """

    ids: pl.Series
    children: pl.Series
    parents: pl.Series


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
        return frame if predicate is None else frame.filter(row_expression(predicate, self))

    def numbers(self, predicate: str | None = None) -> pl.Series:
        """Numbers, from zero, of the rows for which an SQL expression holds."""
        numbered = pl.scan_parquet(self.file, row_index_name=_NUMBER)
        if predicate is not None:
            numbered = numbered.filter(row_expression(predicate, self))
        return collected(numbered.select(_NUMBER), self)[_NUMBER]

    def take(self, numbers: pl.Series) -> pl.LazyFrame:
        """The rows with these numbers, in the table's order."""
        numbered = pl.scan_parquet(self.file, row_index_name=_NUMBER)
        return numbered.filter(pl.col(_NUMBER).is_in(numbers.implode())).drop(_NUMBER)

    def links(self) -> Links:
        """Who descends from whom; empty where the table's rows have no ids."""
        if not {"id", "parents"} <= set(pl.read_parquet_schema(self.file)):
            empty = pl.Series(dtype=pl.UInt64)
            return Links(empty, pl.Series(dtype=pl.UInt32), empty)
        frame = pl.read_parquet(self.file, columns=["id", "parents"])
        numbered = frame.select(pl.int_range(pl.len(), dtype=pl.UInt32).alias(_NUMBER), "parents")
        made = numbered.explode("parents").drop_nulls()
        return Links(frame["id"].hash(), made[_NUMBER], made["parents"].hash())


@dataclass(frozen=True)
class Tables:
    """Tables of the ledger whose bytes can be found."""

    ledger: Ledger
    finder: Finder
    root: Path

    def of_node(self, node: Selected, *, called: str = "") -> Table:
        """Open the table that a node is.

        Args:
            node: An artifact.
            called: Path from the project's root by which it was asked for; it goes before others
                that hold the same bytes.

        Returns:
            The table.

        Raises:
            UserError: It is no table, or its bytes are gone.

        """
        graph = from_root(up(self.ledger, node), self.ledger, self.root)
        found = graph.nodes[node.id]
        if found.kind != "artifact" or not found.name.endswith(".parquet"):
            raise UserError(f"{found.name} is not a table; name an artifact that is a parquet file")
        if called and (self.root / called).is_file():
            found = replace(found, name=called)
        table = self._open(graph, found)
        if table is None:
            raise UserError(f"the bytes of {found.name} are gone; get them back with: dvc pull")
        return table

    def along(self, graph: Graph) -> tuple[list[Table], list[str]]:
        """Tables of a graph in the order of making, and the paths of those that are gone."""
        found, gone = [], []
        graph = from_root(graph, self.ledger, self.root)
        for name in making_order(graph):
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
        # Stages that made equal bytes are all there: the one in whose folder they lie.
        makers.sort(key=lambda maker: f"/{maker.title.partition('@')[0]}/" not in f"/{node.name}")
        return Table(node.id, node.name, file, makers[0] if makers else None) if file else None


def open_tables(ledger: Ledger, root: Path) -> Tables:
    """Open the tables of a project.

    Args:
        ledger: What they are looked up in.
        root: The project's root.

    Returns:
        What finds them by path and digest.

    """
    return Tables(ledger, Finder(root), root)


def collected(frame: pl.LazyFrame, table: Table) -> pl.DataFrame:
    """Run a query, turning a mistake in the user's expression into a sentence.

    Args:
        frame: The query.
        table: Named in the message.

    Returns:
        The result.

    Raises:
        UserError: A column is not there, or the expression does not fit the table.

    """
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
        says = first_line(error)
        raise UserError(f"the expression does not fit {table.path}: {says}") from None


def row_expression(predicate: str, table: Table) -> pl.Expr:
    """Read an SQL expression over the rows of a table.

    Args:
        predicate: Such as `step = 40 and reward < 1`.
        table: Named in the message.

    Returns:
        The expression.

    Raises:
        UserError: It is none.

    """
    try:
        return pl.sql_expr(predicate)
    except pl.exceptions.PolarsError as error:
        first = str(error).splitlines()[0]
        raise UserError(f"'{predicate}' is no SQL expression over {table.path}: {first}") from None


def making_order(graph: Graph) -> list[str]:
    """Nodes so that each comes after what it was made from."""
    before = graph.before()
    return in_order({name: [edge.source for edge in before.get(name, ())] for name in graph.nodes})
