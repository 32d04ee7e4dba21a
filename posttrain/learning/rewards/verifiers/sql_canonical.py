"""A query of SQL without what may be spelled in several ways: aliases, parentheses, order, case.

Two passes: names first, over the whole query, as a name means what its place in it says; then the
text of each piece, from the leaves up.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

from posttrain.stage.hashing import sha256_of

if TYPE_CHECKING:
    from sqlglot.exp import Expression

A_QUERY = "(a query)"
"""Stands for the name of a query that another one reads from."""
LONGEST = 20_000
"""Characters of a query that are still read, and of what stands in the place of aliases."""

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

    _resolve(query, {}, {})
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


def canonical_sql(piece: "Expression") -> str:
    """Spell a piece of a query in the one way that all of its spellings share.

    Identifiers lose their case and text keeps it; `b = a` is `a = b`, `3 < a` is `a > 3`; `and`,
    `or`, sums, products and lists have an order; every operation has its parentheses.

    Args:
        piece: Any part of a query whose names are resolved; it stays as it is.

    Returns:
        The text, in the dialect of SQLite.

    """
    from sqlglot import exp

    whole = exp.Paren(this=piece.copy())
    for node in reversed([each for each in whole.walk() if each is not whole]):
        _spell(node)
    return str(whole.this.sql(dialect="sqlite"))


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


def _resolve(
    query: "Expression", queries: Mapping[str, Columns], outer: Mapping[str, _Source]
) -> Columns:
    """Resolve the names in a query and those inside it, and say what it gives.

    `queries` are the named ones that it may read from, `outer` what the queries around it read.
    """
    from sqlglot import exp

    names = [each.alias_or_name.lower() for each in query.selects]
    inside = list(_inside(query))
    queries = {**queries, **_resolve_named(query, queries, outer)}
    own, read = {}, [source for source, _ in sources_of(query)]
    for source in read:
        name = source.alias_or_name.lower()
        own[name] = _resolve_source(source, queries, outer)
    known = {id(source) for source in read}
    for node in inside:
        if _is_query(node) and id(node) not in known and not isinstance(node.parent, exp.CTE):
            _resolve(node, queries, {**outer, **own})
    columns = [node for node in inside if isinstance(node, exp.Column)]
    aliased = _aliased(query, columns)
    near = {each: replace(own[each], table=None) for each in own} if len(read) == 1 else own
    for column in columns:
        if id(column) not in aliased:
            _resolve_column(column, near, outer)
    given = {
        name: _standing_for(each)
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
    query: "Expression", queries: Mapping[str, Columns], outer: Mapping[str, _Source]
) -> dict[str, Columns]:
    """Resolve the queries that stand in front of one by a name, each of which the next may read."""
    found: dict[str, Columns] = {}
    for named in query.ctes:
        name, body = named.alias.lower(), named.this
        stated = [each.lower() for each in named.alias_column_names]
        names = stated or [each.alias_or_name.lower() for each in getattr(body, "selects", ())]
        # A recursive one reads from itself before it is known what it gives.
        found[name] = {each: f"={place}" for place, each in enumerate(names)}
        if _is_query(body):
            given = _resolve(body, {**queries, **found}, outer)
            marks = [_standing_for(each) for each in body.selects] if stated else []
            found[name] = dict(zip(stated, marks, strict=False)) if stated else given
    return found


def _resolve_source(
    source: "Expression", queries: Mapping[str, Columns], outer: Mapping[str, _Source]
) -> _Source:
    from sqlglot import exp

    if _is_query(source):
        return _Source(A_QUERY, _resolve(source, queries, outer))
    if not isinstance(source, exp.Table):
        return _Source(A_QUERY)
    name = source.this.name.lower()
    if name not in queries or source.db:
        return _Source(name)
    source.set("this", exp.to_identifier(A_QUERY))
    return _Source(A_QUERY, queries[name])


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


def _aliased(query: "Expression", columns: list["Expression"]) -> dict[int, "Expression"]:
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
    lengths = {id(each): len(str(each)) for each in said.values()}
    long = sum(lengths[id(each)] for each in found.values()) > LONGEST
    return {} if long else found


def _clause(node: "Expression", query: "Expression") -> str:
    while node.parent is not query:
        node = node.parent
    return str(node.arg_key)


def _standing_for(selected: "Expression") -> str:
    """Name a column of a query by what it is; short, as queries may stand in queries."""
    return "=" + sha256_of(canonical_sql(selected.unalias()))[:16]


def _is_query(node: "Expression") -> bool:
    """True for a query; joined tables in parentheses are none."""
    from sqlglot import exp

    return isinstance(node, exp.Query) and not isinstance(node.this, exp.Table)


def _inside(query: "Expression") -> Iterator["Expression"]:
    """The nodes of a query, with the queries inside it, but not the nodes of those."""
    nodes = query.walk(prune=lambda node: node is not query and _is_query(node))
    return (node for node in nodes if node is not query)


def _spell(node: "Expression") -> None:
    """Put the one spelling of a node in its place; those below it have theirs."""
    from sqlglot import exp

    if isinstance(node, exp.Paren):
        node.replace(node.this)
    elif isinstance(node, exp.Identifier):
        node.replace(exp.to_identifier(node.name.lower()))
    elif isinstance(node, exp.Var):
        node.set("this", node.name.upper())
    elif isinstance(node, exp.Ordered):
        node.set("desc", node.args.get("desc") or None)
    elif isinstance(node, exp.Join):
        node.set("kind", "CROSS" if kind_of(node) == "cross" else None)
    elif isinstance(node, exp.Binary | exp.Unary | exp.Between | exp.In):
        _spell_operation(node)


def _spell_operation(node: "Expression") -> None:
    from sqlglot import exp

    turned = {exp.GT: exp.LT, exp.GTE: exp.LTE}
    kind, spelled = type(node), node
    if kind in (exp.And, exp.Or, exp.Add, exp.Mul):
        above = node.parent
        while isinstance(above, exp.Paren):
            above = above.parent
        if type(above) is kind:  # the whole chain has one order
            return
        operands = _sorted(_operands(node, kind))
        spelled = reduce(lambda one, other: kind(this=one, expression=other), operands)
    elif kind in (exp.EQ, exp.NEQ):
        one, other = _sorted([node.this, node.expression])
        spelled = kind(this=one, expression=other)
    elif kind in turned:
        spelled = turned[kind](this=node.expression, expression=node.this)
    elif kind is exp.In:
        node.set("expressions", _sorted(node.expressions))
    around = exp.Paren()
    node.replace(around)
    around.set("this", spelled)


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


def _sorted(nodes: Iterable["Expression"]) -> list["Expression"]:
    return sorted(nodes, key=lambda node: str(node.sql(dialect="sqlite")))
