"""How much of a query's structure is the reference's, clause by clause."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot.exp import Expression

_LONGEST = 20_000
"""Characters of a query that are still read."""


def clause_agreement(query: str, reference: str) -> float:
    """Compare two queries of SQLite by their clauses, without running them.

    Each clause that either has is a set of pieces: selected expressions, tables, conditions joined
    by `and`, and so on, those of queries inside it among them. Names of tables stand in the place
    of their aliases, the case of names does not count, and `3 < a` is `a > 3`.

    Args:
        query: What was written.
        reference: What it should be.

    Returns:
        The mean of F1 over these clauses, 0 to 1; 0 where either is no query that can be read.

    """
    given, wanted = _clauses(query), _clauses(reference)
    if not given or not wanted:
        return 0.0
    names = given.keys() | wanted.keys()
    return sum(_overlap(given.get(name), wanted.get(name)) for name in names) / len(names)


def _overlap(given: Counter[str] | None, wanted: Counter[str] | None) -> float:
    if not given or not wanted:
        return 0.0
    return 2 * (given & wanted).total() / (given.total() + wanted.total())


def _clauses(query: str) -> Mapping[str, Counter[str]]:
    """The pieces of each clause; none where it is no query."""
    from sqlglot import exp, parse
    from sqlglot.errors import SqlglotError

    try:
        statements = parse(query[: _LONGEST + 1], read="sqlite")
        if len(query) > _LONGEST or len(statements) != 1:
            return {}
        (root,) = statements
        found: dict[str, Counter[str]] = {}
        if not isinstance(root, exp.Query):
            return {}
        for part in root.find_all(exp.SetOperation):
            found.setdefault("set", Counter())[type(part).__name__] += 1
        for select in root.find_all(exp.Select):
            for clause, piece in _pieces(select):
                found.setdefault(clause, Counter())[piece] += 1
    except (SqlglotError, RecursionError):
        return {}
    return found


def _pieces(select: "Expression") -> Iterator[tuple[str, str]]:
    """Each piece of one select, with its clause; not of the queries inside."""
    from sqlglot import exp

    joins = select.args.get("joins") or []
    sources = [each.this for each in (select.args.get("from_"), *joins) if each is not None]
    tables = [each for each in sources if isinstance(each, exp.Table)]
    aliases = {each.alias.lower(): each.name.lower() for each in tables if each.alias}
    alone = len(sources) == 1

    def written(piece: "Expression") -> str:
        return _canonical(piece.copy().unalias(), aliases, alone=alone)

    for each in select.expressions:
        yield "select", written(each)
    for each in sources:
        yield "from", each.name.lower() if isinstance(each, exp.Table) else "(a query)"
    for join in joins:
        for each in _conjuncts(join.args.get("on")):
            yield "on", written(each)
    for clause in ("where", "having"):
        stated = select.args.get(clause)
        for each in _conjuncts(stated and stated.this):
            yield clause, written(each)
    for clause in ("group", "order"):
        stated = select.args.get(clause)
        for each in stated.expressions if stated else ():
            yield clause, written(each)
    for clause in ("limit", "offset", "distinct"):
        if select.args.get(clause):
            yield clause, written(select.args[clause])


def _conjuncts(condition: "Expression | None") -> Iterator["Expression"]:
    if condition is not None:
        yield from condition.flatten() if type(condition).__name__ == "And" else [condition]


def _canonical(piece: "Expression", aliases: Mapping[str, str], *, alone: bool) -> str:
    """The text of a piece in which spelling does not count."""
    from sqlglot import exp

    turned = {exp.GT: exp.LT, exp.GTE: exp.LTE}

    def plain(node: "Expression") -> "Expression":
        if isinstance(node, exp.Paren):
            return node.this
        if isinstance(node, exp.Column) and node.table:
            table = None if alone else aliases.get(node.table.lower(), node.table.lower())
            return exp.column(node.name.lower(), table)
        if isinstance(node, exp.Identifier):
            return exp.to_identifier(node.name.lower())
        if type(node) in turned:
            return turned[type(node)](this=node.expression, expression=node.this)
        if isinstance(node, exp.EQ) and node.expression.sql() < node.this.sql():
            return exp.EQ(this=node.expression, expression=node.this)
        return node

    return str(piece.transform(plain).sql(dialect="sqlite")).lower()
