"""Credit for the structure of a query that gives other rows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.score import CORRECT, WRONG_ANSWER, Score
from posttrain.learning.rewards.verifiers import sql_canonical, sql_graded
from posttrain.learning.rewards.verifiers.sandboxed import ERROR, NOT_RUN, TIMEOUT
from posttrain.learning.rewards.verifiers.sql import SqlVerifier
from posttrain.learning.rewards.verifiers.sql_clauses import clause_agreement
from posttrain.learning.rewards.verifiers.sql_graded import SqlGradedVerifier
from posttrain.stage.errors import UserError

pytest.importorskip("sqlglot", reason="an extra: pip install 'posttrain[sql]'")

WANTED = "select a, b from t where a > 1 and b = 'x' order by a"


@pytest.mark.parametrize(
    ("query", "reference", "expected"),
    [
        (WANTED, WANTED, 1.0),
        # Select, from, where and order: one condition of two is there, F1 2/3.
        ("select a, b from t where a > 1 order by a", WANTED, (1 + 1 + 2 / 3 + 1) / 4),
        # No order: a clause that only one has counts nothing.
        ("select b, a from t where b = 'x' and a > 1", WANTED, 3 / 4),
        # One expression of two, and another table.
        ("select a from u where a > 1 and b = 'x' order by a", WANTED, (2 / 3 + 0 + 1 + 1) / 4),
        ("select a from t group by a having count(*) > 2", "select a from t", 2 / 4),
        ("select distinct a from t", "select a from t", 2 / 3),
        ("select a from t limit 3", "select a from t limit 4", 2 / 3),
        ("select a from t order by a desc", "select a from t order by a", 2 / 3),
    ],
)
def test_clauses_agree_by_their_pieces(query, reference, expected):
    assert clause_agreement(query, reference) == pytest.approx(expected)
    assert clause_agreement(reference, query) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("query", "reference"),
    [
        ("SELECT T.A FROM T", "select a from t"),
        ("select x.a from t as x", "select t.a from t"),
        ("select p.a from t p join u q on p.i = q.i", "select t.a from t join u on u.i = t.i"),
        ("select a from t where 1 < a and b = 2", "select a from t where (b = 2) and a > 1"),
        ("select a as total from t", "select a from t"),
        ('select "A" from t', "select a from t"),
    ],
)
def test_spelling_does_not_count(query, reference):
    assert clause_agreement(query, reference) == 1.0


@pytest.mark.parametrize(
    ("query", "reference"),
    [
        # Below a comparison that is turned round, below one whose sides are put in order, and in
        # parentheses: on both sides, so that whichever is replaced, the other is below it.
        (
            "select x.a from t x join u y on x.i = y.i where x.b + 1 > y.c - 2",
            "select t.a from t join u on u.i = t.i where u.c - 2 < 1 + t.b",
        ),
        (
            "select p.a from t p join u q on (q.i = p.i) where ((p.b + (q.c)) = q.d)",
            "select t.a from t join u on t.i = u.i where u.d = t.b + u.c",
        ),
        # In a query inside: its own alias, and the one of the query around it.
        (
            "select x.a from t x where exists (select 1 from u y where y.i = x.i and y.b > 3)",
            "select a from t where exists (select 1 from u where 3 < b and t.i = i)",
        ),
        # What a query inside gives, and the query itself, by another name.
        (
            "select z.n from (select count(*) as n from t) z where z.n > 1",
            "select m from (select count(*) as m from t) as w where 1 < w.m",
        ),
        (
            "with c as (select a, count(*) n from t group by a) select x.n from c x, u",
            "with d as (select a, count(*) m from t group by a) select d.m from u, d",
        ),
        (
            "with recursive c(n) as (select 1 union all select n + 1 from c) select n from c",
            "with recursive d(m) as (select 1 union all select 1 + d.m from d) select d.m from d",
        ),
        # An alias of a selected expression, where another clause names it.
        (
            "select a, count(*) as n from t group by a having n > 2 order by n desc",
            "select a, count(*) from t group by a having count(*) > 2 order by count(*) desc",
        ),
        (
            "select a as x from t union select b from u order by x",
            "select a as y from t union select b from u order by y",
        ),
        ("select a + 1 as a from t where a > 3", "select a + 1 as b from t where a > 3"),
        # Conditions that `and` joins, however deep in parentheses.
        (
            "select a from t where ((a = 1 and (b = 2 and c = 3)) and d = 4)",
            "select a from t where d = 4 and c = 3 and b = 2 and a = 1",
        ),
        (
            "select a from t where b = 1 or (c = 2 or a = 3)",
            "select a from t where a = 3 or c = 2 or b = 1",
        ),
        ("select a from t join u on t.i = u.i", "select a from t inner join u on t.i = u.i"),
        (
            "select a from t left join u on t.i = u.i",
            "select a from t left outer join u on t.i = u.i",
        ),
        ("select a from t, u", "select a from u cross join t"),
        ("select a from t join u using (I)", "select a from t join u using (i)"),
        ("select a from t order by a asc", "select a from t order by a"),
        ("select x.a from (t x join u y on x.i = y.i)", "select t.a from (t join u on t.i = u.i)"),
        (
            "select e.name from emp e join emp m on e.boss = m.id where e.pay > m.pay",
            "select emp.name from emp join emp x on x.id = emp.boss where x.pay < emp.pay",
        ),
        (
            "select sum(a) over w from t window w as (order by b), v as (w rows 1 preceding)",
            "select sum(a) over x from t window x as (order by b), y as (x rows 1 preceding)",
        ),
    ],
)
def test_aliases_and_the_order_of_sides_do_not_count_anywhere(query, reference):
    assert clause_agreement(query, reference) == 1.0
    assert clause_agreement(reference, query) == 1.0


BOSSES = "select e.name from emp e join emp m on e.boss = m.id"


@pytest.mark.parametrize(
    ("query", "reference", "expected"),
    [
        # Of select, from and where, the condition is another: text keeps its case.
        ("select a from t where b = 'A'", "select a from t where b = 'a'", 2 / 3),
        # In double quotes it is the name of a column, whatever the table has.
        ('select a from t where b = "A"', "select a from t where b = 'A'", 2 / 3),
        # Of select, from, join and on, the kind of join is another.
        ("select a from t left join u on t.i = u.i", "select a from t join u on t.i = u.i", 3 / 4),
        # Without a condition all pairs are kept: of four clauses, two are alike.
        ("select a from t cross join u", "select a from t join u on t.i = u.i", 2 / 4),
        # The same tables, but all rows of the other one.
        (
            "select a from u left join t on t.i = u.i",
            "select a from t left join u on t.i = u.i",
            3 / 4,
        ),
        ("select a from t join u using (i)", "select a from t join u using (j)", 3 / 4),
        ("select a from t join u using (i)", "select a from t natural join u", 3 / 4),
        # Of set, select and from, one.
        (
            "select a from t union all select a from u",
            "select a from t union select a from u",
            2 / 3,
        ),
        # Of set, select, from and order, one that only one has.
        (
            "select a from t union select a from u order by a",
            "select a from t union select a from u",
            3 / 4,
        ),
        # Parentheses that say something: of select and from, the expression is another.
        ("select (a + b) * c from t", "select a + b * c from t", 1 / 2),
        ("select a - (b - c) from t", "select a - b - c from t", 1 / 2),
        # A column of the same name, of what is another expression in the query inside.
        (
            "select n from (select max(a) as n from t)",
            "select n from (select min(a) as n from t)",
            # Two selected expressions, neither alike; the tables are.
            1 / 2,
        ),
        # The sides of a comparison that does not commute.
        ("select a from t where a < b", "select a from t where b < a", 2 / 3),
        # A table read twice: of select, from, join, on and where, one is of the other place.
        (f"{BOSSES} where e.pay > m.pay", f"{BOSSES} where e.pay < m.pay", 4 / 5),
        (BOSSES, BOSSES.replace("e.name", "m.name"), 3 / 4),
        # So with a query that is read twice: select, from, join, where, and those of the query.
        (
            "with c as (select a from t) select 1 from c x, c y where x.a < y.a",
            "with c as (select a from t) select 1 from c x, c y where y.a < x.a",
            3 / 4,
        ),
        # Of the query around and the one inside; the condition around holds the inner one.
        (
            "select a from t x where exists (select 1 from t y where x.a < y.a)",
            "select a from t x where exists (select 1 from t y where y.a < x.a)",
            2 / 3,
        ),
        # Of set, the word is alike and what is taken away is not: 1/2.
        (
            "select a from t except select a from u",
            "select a from u except select a from t",
            (1 / 2 + 1 + 1) / 3,
        ),
        # Of select, from and window: what is selected holds the window.
        (
            "select sum(a) over w from t window w as (order by b)",
            "select sum(a) over w from t window w as (order by c)",
            1 / 3,
        ),
    ],
)
def test_what_means_something_else_counts(query, reference, expected):
    assert clause_agreement(query, reference) == pytest.approx(expected)
    assert clause_agreement(reference, query) == pytest.approx(expected)


TABLES = ("p", "q", "r", "s", "w")
COLUMNS = ("m", "n")


def spelled(names, flips, *, least=2):
    """One query, with these aliases, sides turned round and parentheses as `flips` says."""
    p, q, r, s, w, m, n = (names[each] for each in (*TABLES, *COLUMNS))
    turn = iter(flips)

    def both(one, sign, other):
        turned = {">": "<", "<=": ">="}.get(sign, sign)
        text = f"{other} {turned} {one}" if next(turn) else f"{one} {sign} {other}"
        return f"({text})" if next(turn) or sign in ("+", "*", "or") else text

    of_group = both(f"{p}.a", ">", "1")
    joined = both(f"{q}.i", "=", f"{r}.i")
    other = both(both(f"{q}.b", "+", "1"), "<=", both(f"{r}.{n}", "*", f"{s}.k"))
    inside = both(both(f"{w}.i", "=", f"{q}.i"), "and", f"{w}.b = 'X'")
    where = both(
        both(f"{q}.name in (select {w}.name from w {w} where {inside})", "or", other),
        "and",
        both(f"{q}.k", "!=", f"{s}.k"),
    )
    return (
        f"select {q}.name, {r}.{n} + {least} as {m} from u as {q} join (select {p}.i, count(*) as"
        f" {n} from t {p} where {of_group} group by {p}.i) {r} on {joined} left join v as {s}"
        f" on {both(f'{s}.i', '=', f'{q}.i')} where {where} order by {m} desc"
    )


AS_IT_IS = {each: each for each in (*TABLES, *COLUMNS)}
FREE = ("x", "y", "z", "alias", "Alias2", "T1", "t2", "u_", *TABLES, *COLUMNS)


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_no_renaming_and_no_turning_round_changes_the_score(data):
    chosen = data.draw(st.permutations(FREE))[: len(AS_IT_IS)]
    flips = data.draw(st.lists(st.booleans(), min_size=40, max_size=40))
    query = spelled(dict(zip(AS_IT_IS, chosen, strict=True)), flips)
    plain = spelled(AS_IT_IS, [False] * 40)
    assert clause_agreement(query, plain) == 1.0
    # Against a third, the score is that of the plain one, and less than 1.
    third = spelled(AS_IT_IS, [False] * 40, least=3).replace("'X'", "'x'")
    assert clause_agreement(query, third) == clause_agreement(plain, third) < 1.0


def test_queries_inside_count_by_their_own_clauses():
    outer = "select a from t where a in (select b from u where c > {})"
    # Of select and from all is alike; the outer condition holds the inner one, and both differ.
    assert clause_agreement(outer.format(1), outer.format(2)) == pytest.approx(2 / 3)
    union = "select a from t union select a from u"
    assert clause_agreement(union, union.replace("union", "except")) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "query",
    ["", "no query", "select from where", "delete from t", "select 1; select 2", "("],
)
def test_what_is_no_query_has_no_structure(query):
    assert clause_agreement(query, WANTED) == 0.0


def test_what_is_too_long_has_no_structure():
    assert clause_agreement("select " + "a, " * 20_000 + "b from t", WANTED) == 0.0
    spaces = "select a" + " " * 20_000 + "from t"
    assert clause_agreement(spaces, spaces) == 0.0


# Each shape, and how many of it are read; one more is not.
SHAPES = [
    (lambda times: f"select {'(' * times}a{')' * times}", 20),
    (lambda times: f"select {'f(' * times}a{')' * times}", 20),
    (lambda times: f"select {'case when ' * times}a{' then 1 end' * times}", 20),
    (lambda times: f"select {'not ' * times}a", 20),
    (lambda times: f"select {'interval ' * times}a", 20),
    # Two levels each.
    (lambda times: f"select {'not (' * times}a{')' * times}", 10),
    # The tree is the select, one node for each sign, the column and its name.
    (lambda times: f"select {'a - ' * times}a", 253),
    (lambda times: f"select {'a || ' * times}a", 253),
    # Two nodes each, and the select.
    (lambda times: f"select {'a, ' * (times - 1)}a", 999),
]


@pytest.mark.parametrize(("shape", "most"), SHAPES)
def test_what_is_read_is_the_same_at_any_depth_of_the_caller(shape, most):
    def called(depth, query):
        return clause_agreement(query, query) if depth == 0 else called(depth - 1, query)

    for depth in (0, 400):
        assert called(depth, shape(most)) == 1.0
        assert called(depth, shape(most + 1)) == 0.0


@pytest.fixture
def work(monkeypatch):
    """Count the nodes that are spelled: of two queries, and of what they give to others."""
    counted = []
    spelled_once = sql_canonical._spelled

    def spelled_and_counted(node, texts):
        counted.append(type(node))
        return spelled_once(node, texts)

    monkeypatch.setattr(sql_canonical, "_spelled", spelled_and_counted)
    return counted


@pytest.mark.parametrize(
    "query",
    [
        # Operations in operations, chains of those that have an order, and names of names.
        "select 1 where " + " and ".join(["=".join("a" * 24)] * 24),
        "select 1 where " + " or ".join(["+".join("a" * 24)] * 24),
        "select 1 where " + " - ".join("a" * 250),
        "select " + "(select a + " * 20 + "a" + ")" * 20,
        "select " + "a, " * 500 + "a" + " union select a" * 120,
        "select a" + " + 1" * 200 + " as n order by " + "n, " * 4 + "n",
    ],
)
def test_each_node_is_spelled_once_and_once_for_each_query_around_it(query, work):
    assert clause_agreement(query, query) == 1.0
    # Two queries; as many again for the names of what each gives, and for the aliases in them.
    assert len(work) <= 2 * 3 * sql_canonical.MOST_NODES


def test_what_is_over_the_bound_is_not_spelled(work):
    query = "select 1 where " + " and ".join(["=".join("a" * 120)] * 80)
    assert clause_agreement(query, query) == 0.0
    assert not work


def test_names_of_names_do_not_grow(work):
    """Each query doubles what the one inside it gives: 2 to the 20th if it were written out."""
    query = "select a as x from t"
    for _ in range(20):
        query = f"select x + x as x from ({query})"
    assert clause_agreement(query, query) == 1.0
    # Select, alias, sum, columns, names, from and query are fewer than 20, and read twice each.
    assert len(work) < 2 * 2 * 20 * 21
    work.clear()
    # 40,000 nodes if they were written out, which are more than may be: the alias stays.
    long = "select a" + " + 1" * 200 + " as n from t order by " + "n, " * 200 + "n"
    assert clause_agreement(long, long) == 1.0
    assert len(work) < 2 * 3 * sql_canonical.MOST_NODES
    written = long.replace("n, ", "a" + " + 1" * 200 + ", ", 1)
    assert 0.0 < clause_agreement(long, written) < 1.0


@pytest.fixture
def scored(monkeypatch):
    """Score one query whose run came out as said; no sandbox is needed for that."""

    def score(query, outcome, **settings):
        monkeypatch.setattr(SqlVerifier, "verify", lambda self, texts, problems: [outcome])
        verifier = SqlGradedVerifier(database="create table t (a)", **settings)
        problem = Problem("db", "?", WANTED, 1, "sql_graded")
        return verifier.score(f"```sql\n{query}\n```", problem)

    return score


def test_only_what_ran_to_other_rows_or_failed_is_graded(scored):
    near = WANTED.replace(" order by a", "")
    assert scored(near, WRONG_ANSWER) == Score(0.5 * 3 / 4, "wrong_answer")
    assert scored(near, WRONG_ANSWER, most=0.2) == Score(0.2 * 3 / 4, "wrong_answer")
    assert scored(near, ERROR) == Score(0.5 * 3 / 4, "error")
    for outcome in (CORRECT, TIMEOUT, NOT_RUN):
        assert scored(near, outcome) == outcome
    # Never as much as a right query, and never solved.
    assert scored(WANTED, WRONG_ANSWER) == Score(0.5, "wrong_answer")
    assert scored(WANTED, WRONG_ANSWER).correct is False


def test_without_sqlglot_the_command_is_told(monkeypatch):
    monkeypatch.setattr(sql_graded, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'posttrain\[sql\]', or take the verifier"):
        SqlGradedVerifier(database="x").programs("select 1", Problem("db", "?", "1", 1, "sql"))
