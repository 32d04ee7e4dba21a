"""How much of a query's structure is the reference's, clause by clause."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from posttrain.learning.rewards.verifiers.sql_canonical import (
    A_QUERY,
    MOST_NODES,
    canonical_texts,
    conjuncts,
    kind_of,
    resolve_names,
    sources_of,
)

if TYPE_CHECKING:
    from sqlglot.exp import Expression
    from sqlglot.tokens import Token

LONGEST = 20_000
"""Characters of a query that are still read."""
DEEPEST = 256
"""Nodes of a query's tree that may stand one in another."""
MOST_NESTED = 20
"""Brackets, `case` and `not` that may stand one in another. The parser takes up to 25 calls for
each of them, of the 1,000 that Python allows: so what is read depends on no caller's depth."""


def clause_agreement(query: str, reference: str) -> float:
    """Compare two queries of SQLite by their clauses, without running them.

    Each clause that either has is a set of pieces: selected expressions, tables, kinds of join,
    conditions joined by `and`, and so on, those of queries inside it among them. What is named
    stands in the place of its alias, and pieces are alike where `canonical_texts` of both are.

    Args:
        query: What was written.
        reference: What it should be.

    Returns:
        The mean of F1 over these clauses, 0 to 1; 0 where either is no query that can be read,
        or one that is over `LONGEST`, `MOST_NODES`, `DEEPEST` or `MOST_NESTED`.

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
    from sqlglot import exp
    from sqlglot.dialects import SQLite
    from sqlglot.errors import SqlglotError

    found: dict[str, Counter[str]] = {}
    try:
        dialect = SQLite()
        tokens = dialect.tokenize(query[: LONGEST + 1])
        if len(query) > LONGEST or len(tokens) > MOST_NODES or _nested(tokens) > MOST_NESTED:
            return {}
        statements = dialect.parser().parse(tokens, query)
    except (SqlglotError, RecursionError):
        return {}
    root = statements[0] if len(statements) == 1 else None
    if not isinstance(root, exp.Query) or not _is_small(root):
        return {}
    resolve_names(root)
    texts = canonical_texts(root)
    for part in root.find_all(exp.Select, exp.SetOperation, exp.Subquery):
        for clause, piece in _pieces(part, texts):
            found.setdefault(clause, Counter())[piece] += 1
    return found


def _nested(tokens: Sequence["Token"]) -> int:
    """How deep brackets, `case` and what stands before its operand stand one in another."""
    from sqlglot.tokens import TokenType as Type

    opening = {Type.L_PAREN, Type.L_BRACKET, Type.L_BRACE, Type.CASE}
    closing = {Type.R_PAREN, Type.R_BRACKET, Type.R_BRACE, Type.END}
    before = {Type.NOT, Type.INTERVAL}
    after = {Type.AND, Type.OR, Type.COMMA, Type.WHEN, Type.THEN, Type.ELSE, Type.ON, Type.WHERE}
    prefixes, now, deepest = [0], 0, 0
    for token in tokens:
        kind = token.token_type
        if kind in opening:
            prefixes.append(0)
            now += 1
        elif kind in closing and len(prefixes) > 1:
            now -= 1 + prefixes.pop()
        elif kind in before:
            prefixes[-1] += 1
            now += 1
        elif kind in after:
            now -= prefixes[-1]
            prefixes[-1] = 0
        deepest = max(deepest, now)
    return deepest


def _is_small(root: "Expression") -> bool:
    left, nodes = [(root, 1)], 0
    while left:
        node, depth = left.pop()
        nodes += 1
        if nodes > MOST_NODES or depth > DEEPEST:
            return False
        left += [(each, depth + 1) for each in node.iter_expressions()]
    return True


def _pieces(query: "Expression", texts: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """Each piece of one query, with its clause; not of the queries inside."""
    from sqlglot import exp

    if isinstance(query, exp.SetOperation):
        yield from _pieces_of_set(query, texts)
    for each in query.expressions if isinstance(query, exp.Select) else ():
        yield "select", texts[id(each)]
    for source, join in sources_of(query):
        name = source.this.name.lower() if isinstance(source, exp.Table) else A_QUERY
        yield "from", name
        if join is not None:
            yield from _pieces_of(join, name, texts)
    for clause in ("where", "having"):
        stated = query.args.get(clause)
        for each in conjuncts(stated and stated.this):
            yield clause, texts[id(each)]
    for clause in ("group", "order"):
        stated = query.args.get(clause)
        for each in stated.expressions if stated else ():
            yield clause, texts[id(each)]
    for each in query.args.get("windows") or ():
        yield "window", texts[id(each)]
    for clause in ("limit", "offset", "distinct"):
        # Of a union, `distinct` is no piece but a flag.
        if isinstance(query.args.get(clause), exp.Expression):
            yield clause, texts[id(query.args[clause])]


def _pieces_of_set(query: "Expression", texts: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """What two queries are joined by, and where their places differ, the second of them."""
    from sqlglot import exp

    yield "set", f"{type(query).__name__} {'distinct' if query.args.get('distinct') else 'all'}"
    if isinstance(query, exp.Except):
        yield "set", f"without {texts[id(query.expression)]}"


def _pieces_of(
    join: "Expression", name: str, texts: Mapping[int, str]
) -> Iterator[tuple[str, str]]:
    """What a join keeps, of which table where the sides differ, and by which condition."""
    kind = kind_of(join)
    yield "join", f"{kind} {name}" if kind in ("left", "right") else kind
    for each in conjuncts(join.args.get("on")):
        yield "on", texts[id(each)]
    for each in join.args.get("using") or ():
        yield "on", f"using {texts[id(each)]}"
    if join.args.get("method"):
        yield "on", str(join.method).lower()
