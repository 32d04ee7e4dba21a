"""How much of a query's structure is the reference's, clause by clause."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from posttrain.learning.rewards.verifiers.sql_canonical import (
    A_QUERY,
    LONGEST,
    canonical_sql,
    conjuncts,
    kind_of,
    resolve_names,
    sources_of,
)

if TYPE_CHECKING:
    from sqlglot.exp import Expression


def clause_agreement(query: str, reference: str) -> float:
    """Compare two queries of SQLite by their clauses, without running them.

    Each clause that either has is a set of pieces: selected expressions, tables, kinds of join,
    conditions joined by `and`, and so on, those of queries inside it among them. What is named
    stands in the place of its alias, and pieces are alike where `canonical_sql` of both is.

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

    found: dict[str, Counter[str]] = {}
    try:
        statements = parse(query[: LONGEST + 1], read="sqlite")
        if len(query) > LONGEST or len(statements) != 1:
            return {}
        (root,) = statements
        if not isinstance(root, exp.Query):
            return {}
        resolve_names(root)
        for part in root.find_all(exp.Select, exp.SetOperation, exp.Subquery):
            for clause, piece in _pieces(part):
                found.setdefault(clause, Counter())[piece] += 1
    except (SqlglotError, RecursionError):
        return {}
    return found


def _pieces(query: "Expression") -> Iterator[tuple[str, str]]:
    """Each piece of one query, with its clause; not of the queries inside."""
    from sqlglot import exp

    if isinstance(query, exp.SetOperation):
        rows = "distinct" if query.args.get("distinct") else "all"
        yield "set", f"{type(query).__name__} {rows}"
    for each in query.expressions if isinstance(query, exp.Select) else ():
        yield "select", canonical_sql(each)
    for source, join in sources_of(query):
        name = source.this.name.lower() if isinstance(source, exp.Table) else A_QUERY
        yield "from", name
        if join is not None:
            yield from _pieces_of(join, name)
    for clause in ("where", "having"):
        stated = query.args.get(clause)
        for each in conjuncts(stated and stated.this):
            yield clause, canonical_sql(each)
    for clause in ("group", "order"):
        stated = query.args.get(clause)
        for each in stated.expressions if stated else ():
            yield clause, canonical_sql(each)
    for clause in ("limit", "offset"):
        if query.args.get(clause):
            yield clause, canonical_sql(query.args[clause])
    if isinstance(query, exp.Select) and query.args.get("distinct"):
        yield "distinct", canonical_sql(query.args["distinct"])


def _pieces_of(join: "Expression", name: str) -> Iterator[tuple[str, str]]:
    """What a join keeps, of which table where the sides differ, and by which condition."""
    kind = kind_of(join)
    yield "join", f"{kind} {name}" if kind in ("left", "right") else kind
    for each in conjuncts(join.args.get("on")):
        yield "on", canonical_sql(each)
    for each in join.args.get("using") or ():
        yield "on", f"using {canonical_sql(each)}"
    if join.args.get("method"):
        yield "on", str(join.method).lower()
