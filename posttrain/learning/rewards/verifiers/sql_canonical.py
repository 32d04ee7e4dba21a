"""A query of SQL without what may be spelled in several ways: aliases, parentheses, order, case.

Two passes: names first, over the whole query, as a name means what its place in it says; then the
text of each piece, from the leaves up.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from posttrain.stage.hashing import sha256_of

if TYPE_CHECKING:
    from sqlglot.exp import Expression

A_QUERY = "(a query)"
"""Stands for the name of a query that another one reads from."""
A_WINDOW = "(a window)"
"""Stands for the name of a window where it is defined."""
MOST_NODES = 2_000
"""Of a query that is still read: its tokens, its nodes, and those that stand for its aliases."""
LONG = 100
"""Characters of a piece from which on its digest stands for it: what holds it stays short."""

Columns = Mapping[str, str]
"""What a query gives: name of a column -> what stands in its place where that query is read."""


@dataclass(frozen=True)
class _Source:
    """What a query reads from."""

    table: str | None
    """What stands before its columns; None where that need not be said."""
    columns: Columns = field(default_factory=dict)
    """Those of a query; of a table, none are known."""


def resolve_names(query: "Expression") -> None:
    """Put tables and expressions in the place of their aliases, everywhere in a query.

    Args:
        query: As parsed; it is changed.

    """
    from sqlglot import exp

    _Names().resolve(query, {}, {})
    for node in list(query.find_all(exp.Alias)):
        node.replace(node.this)
    for node in query.find_all(exp.Table, exp.Subquery, exp.Values):
        node.set("alias", None)
    for node in query.find_all(exp.CTE):
        node.set("alias", exp.TableAlias(this=exp.to_identifier(A_QUERY)))


def sources_of(query: "Expression") -> Iterator[tuple["Expression", "Expression | None"]]:
    """Go through the tables and queries that a select reads from.

    Args:
        query: A select; any other query reads from none itself.

    Yields:
        Each with the join that adds it; the first of them without one.

    """
    from sqlglot import exp

    first = query.args.get("from_") if isinstance(query, exp.Select) else None
    joins = query.args.get("joins") or ()
    for node in (first, *joins) if first is not None else ():
        source = node.this
        nested = source.this if isinstance(source, exp.Subquery) else None
        inside = (nested.args.get("joins") or ()) if isinstance(nested, exp.Table) else ()
        yield nested if isinstance(nested, exp.Table) else source, None if node is first else node
        yield from ((join.this, join) for join in inside)


def canonical_texts(whole: "Expression") -> dict[int, str]:
    """Spell each piece of a query in the one way that all of its spellings share.

    Identifiers lose their case and text keeps it; `b = a` is `a = b`, `3 < a` is `a > 3`; `and`,
    `or`, sums, products and lists have an order; parentheses that only group are gone. Each node
    is spelled once, from the leaves up, whatever the depth.

    Args:
        whole: Any part of a query whose names are resolved; it stays as it is.

    Returns:
        The text of every node by its `id`: its kind and what it holds, or from `LONG` characters
        on a digest of that; of a longer chain of `and`, `or`, `+` or `*`, only of the whole.

    """
    texts: dict[int, str] = {}
    for node in reversed(list(whole.dfs())):
        text = _spelled(node, texts)
        texts[id(node)] = text if len(text) < LONG else "#" + sha256_of(text)[:32]
    return texts


def conjuncts(condition: "Expression | None") -> list["Expression"]:
    """Return the conditions that `and` joins, through parentheses; none of None."""
    from sqlglot import exp

    return [] if condition is None else _operands(condition, exp.And)


def kind_of(join: "Expression") -> str:
    """Name what a join keeps: all pairs, those that agree, or also what has no other side.

    In SQLite a comma, `join`, `inner join` and `cross join` differ by whether a condition stands
    with them, and by nothing else.

    Args:
        join: The join.

    Returns:
        `cross`, `inner`, `left`, `right` or `full`.

    """
    bound = any(join.args.get(each) for each in ("on", "using", "method"))
    return str(join.side).lower() or ("inner" if bound else "cross")


class _Names:
    """Resolves the names in one query and those inside it."""

    def __init__(self) -> None:
        self.room = MOST_NODES
        """How many nodes may still be put in the place of aliases."""
        self.marks: dict[int, str] = {}

    def resolve(
        self, query: "Expression", queries: Mapping[str, Columns], outer: Mapping[str, _Source]
    ) -> Columns:
        """Resolve the names in a query and those inside it, and say what it gives.

        `queries` are the named ones that it may read from, `outer` what those around it read.
        """
        from sqlglot import exp

        names = [each.alias_or_name.lower() for each in query.selects]
        inside = list(_inside(query))
        queries = {**queries, **self._resolve_named(query, queries, outer)}
        read = [source for source, _ in sources_of(query)]
        own = _places(
            (source.alias_or_name.lower(), self._resolve_source(source, queries, outer))
            for source in read
        )
        known = {id(source) for source in read}
        # What is read around a query is not what it reads itself, though of the same table.
        around = {
            name: replace(each, table=f"^{each.table}") for name, each in {**outer, **own}.items()
        }
        for node in inside:
            if _is_query(node) and id(node) not in known and not isinstance(node.parent, exp.CTE):
                self.resolve(node, queries, around)
        columns = [node for node in inside if isinstance(node, exp.Column)]
        aliased = self._aliased(query, columns)
        near = {each: replace(own[each], table=None) for each in own} if len(read) == 1 else own
        for column in columns:
            if id(column) not in aliased:
                _resolve_column(column, near, outer)
        _resolve_windows(query, inside)
        given = {
            name: self._standing_for(each)
            for name, each in zip(names, query.selects, strict=True)
            if name not in ("", "*")
        }
        for column in columns:
            if id(column) in aliased:
                column.replace(aliased[id(column)].copy())
            elif not isinstance(query, exp.Select) and not column.table:
                # The order of a union names what its first select gives.
                name = column.name.lower()
                column.set("this", exp.to_identifier(given.get(name, name)))
        return given

    def _resolve_named(
        self, query: "Expression", queries: Mapping[str, Columns], outer: Mapping[str, _Source]
    ) -> dict[str, Columns]:
        """Resolve the queries in front of one, each of which the next may read by its name."""
        found: dict[str, Columns] = {}
        for named in query.ctes:
            name, body = named.alias.lower(), named.this
            stated = [each.lower() for each in named.alias_column_names]
            names = stated or [each.alias_or_name.lower() for each in getattr(body, "selects", ())]
            # A recursive one reads from itself before it is known what it gives.
            found[name] = {each: f"={place}" for place, each in enumerate(names)}
            if _is_query(body):
                given = self.resolve(body, {**queries, **found}, outer)
                marks = [self._standing_for(each) for each in body.selects] if stated else []
                found[name] = dict(zip(stated, marks, strict=False)) if stated else given
        return found

    def _resolve_source(
        self, source: "Expression", queries: Mapping[str, Columns], outer: Mapping[str, _Source]
    ) -> _Source:
        from sqlglot import exp

        if _is_query(source):
            return _Source(A_QUERY, self.resolve(source, queries, outer))
        if not isinstance(source, exp.Table):
            return _Source(A_QUERY)
        name = source.this.name.lower()
        if name not in queries or source.db:
            return _Source(name)
        source.set("this", exp.to_identifier(A_QUERY))
        return _Source(A_QUERY, queries[name])

    def _aliased(self, query: "Expression", columns: list["Expression"]) -> dict[int, "Expression"]:
        """What a select's columns that are aliases of its own stand for, by their `id`.

        As SQLite has it: a term of the order is an alias if it can be, anything else a column.
        """
        from sqlglot import exp

        said = {
            each.alias.lower(): each.this
            for each in (query.expressions if isinstance(query, exp.Select) else ())
            if isinstance(each, exp.Alias)
        }
        clauses = {id(column): _clause(column, query) for column in columns} if said else {}
        selected = {each.name.lower() for each in columns if clauses.get(id(each)) == "expressions"}
        found = {
            id(column): said[name]
            for column in columns
            if not column.table
            and (name := column.name.lower()) in said
            and clauses[id(column)] != "expressions"
            and (isinstance(column.parent, exp.Ordered) or name not in selected)
        }
        sizes = {id(each): sum(1 for _ in each.dfs()) for each in said.values()}
        size = sum(sizes[id(each)] for each in found.values())
        if size > self.room:
            return {}
        self.room -= size
        return found

    def _standing_for(self, selected: "Expression") -> str:
        """Name a column of a query by what it is; short, as queries may stand in queries."""
        # Every union of a chain gives what its first select does: it is spelled once.
        if id(selected) not in self.marks:
            self.marks[id(selected)] = _mark(selected.unalias())
        return self.marks[id(selected)]


def _mark(piece: "Expression") -> str:
    return "=" + sha256_of(canonical_texts(piece)[id(piece)])[:16]


def _places(read: Iterable[tuple[str, _Source]]) -> dict[str, _Source]:
    """Name what one select reads: the same table, read again, is another place, `emp#2`."""
    found: dict[str, _Source] = {}
    seen: Counter[tuple[str | None, tuple[str, ...]]] = Counter()
    for name, source in read:
        key = (source.table, tuple(source.columns.values()))
        seen[key] += 1
        again = f"{source.table}#{seen[key]}"
        found[name] = source if seen[key] == 1 else replace(source, table=again)
    return found


def _resolve_windows(query: "Expression", inside: list["Expression"]) -> None:
    """Put what a window is in the place of its name."""
    from sqlglot import exp

    marks: dict[str, str] = {}
    defined = list(query.args.get("windows") or ())
    for node in (*defined, *(each for each in inside if isinstance(each, exp.Window))):
        used = node.args.get("alias")
        if used is not None and used.name.lower() in marks:
            node.set("alias", exp.to_identifier(marks[used.name.lower()]))
        if node.arg_key == "windows" and node.this.name != A_WINDOW:
            name = node.this.name.lower()
            node.set("this", exp.to_identifier(A_WINDOW))
            marks[name] = _mark(node)


def _resolve_column(
    column: "Expression", near: Mapping[str, _Source], outer: Mapping[str, _Source]
) -> None:
    """Name the table, and what a query gives, in place of aliases of them."""
    from sqlglot import exp

    name, table = column.name.lower(), column.table.lower()
    if table:
        source = near.get(table) or outer.get(table)
    else:
        source = next((each for each in near.values() if name in each.columns), None)
    if source is None:
        return
    if name in source.columns:
        column.set("this", exp.to_identifier(source.columns[name]))
    column.set("table", source.table and exp.to_identifier(source.table))
    column.set("db", None)


def _clause(node: "Expression", query: "Expression") -> str:
    while node.parent is not query:
        node = node.parent
    return str(node.arg_key)


def _is_query(node: "Expression") -> bool:
    """True for a query; joined tables in parentheses are none."""
    from sqlglot import exp

    return isinstance(node, exp.Query) and not isinstance(node.this, exp.Table)


def _inside(query: "Expression") -> Iterator["Expression"]:
    """The nodes of a query, with the queries inside it, but not the nodes of those."""
    nodes = query.walk(prune=lambda node: node is not query and _is_query(node))
    return (node for node in nodes if node is not query)


def _spelled(node: "Expression", texts: Mapping[int, str]) -> str:
    """The one spelling of a node, from those of the nodes that it holds."""
    from sqlglot import exp

    turned = {exp.GT: exp.LT, exp.GTE: exp.LTE}
    kind, held = type(node), dict(node.args)
    if kind in (exp.Paren, exp.Alias):
        return texts[id(node.this)]
    if kind is exp.Identifier:
        return repr(node.name.lower())
    if kind in (exp.And, exp.Or, exp.Add, exp.Mul):
        above = node.parent
        while isinstance(above, exp.Paren):
            above = above.parent
        # The whole chain has one order.
        parts = [] if type(above) is kind else _in_order(_operands(node, kind), texts)
        return f"{kind.__name__}({', '.join(parts)})"
    if kind in (exp.EQ, exp.NEQ):
        parts = _in_order([node.this, node.expression], texts)
        return f"{kind.__name__}({', '.join(parts)})"
    if kind in turned:
        kind, held = turned[kind], {"this": node.expression, "expression": node.this}
    elif kind in (exp.Var, exp.Anonymous):
        held["this"] = node.name.upper()
    elif kind is exp.Join:
        held.update(kind=kind_of(node), side=None)
    elif kind is exp.In:
        held["expressions"] = _in_order(node.expressions, texts)
    parts = [f"{key}={_shown(held[key], texts)}" for key in sorted(held) if _says(held[key])]
    return f"{kind.__name__}({', '.join(parts)})"


def _says(value: object) -> bool:
    """False for what the parser leaves at a default: `order by a asc` is `order by a`."""
    return value is not None and value is not False and value != []


def _shown(value: object, texts: Mapping[int, str]) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_shown(each, texts) for each in value)}]"
    return texts[id(value)] if id(value) in texts else repr(value)


def _operands(node: "Expression", kind: type["Expression"]) -> list["Expression"]:
    """What one operation joins, through parentheses and further ones of its kind."""
    found, left = [], [node]
    while left:
        each = left.pop()
        bare = each.unnest()
        if isinstance(bare, kind):
            left += [bare.expression, bare.this]
        else:
            found.append(each)
    return found


def _in_order(nodes: Iterable["Expression"], texts: Mapping[int, str]) -> list[str]:
    return sorted(texts[id(node)] for node in nodes)
