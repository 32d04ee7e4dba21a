"""Credit for the structure of a query that gives other rows."""

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.score import CORRECT, WRONG_ANSWER, Score
from posttrain.learning.rewards.verifiers import sql_graded
from posttrain.learning.rewards.verifiers.sandboxed import ERROR, NOT_RUN, TIMEOUT
from posttrain.learning.rewards.verifiers.sql import SqlVerifier
from posttrain.learning.rewards.verifiers.sql_clauses import clause_agreement
from posttrain.learning.rewards.verifiers.sql_graded import SqlGradedVerifier
from posttrain.stage.errors import UserError

pytest.importorskip("sqlglot", reason="an extra: pip install --editable '.[sql]'")

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
    ],
)
def test_spelling_does_not_count(query, reference):
    assert clause_agreement(query, reference) == 1.0


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


def test_what_is_too_long_or_too_deep_has_no_structure():
    assert clause_agreement("select " + "(" * 3000 + "a" + ")" * 3000, WANTED) == 0.0
    assert clause_agreement("select " + "a, " * 20_000 + "b from t", WANTED) == 0.0


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
    with pytest.raises(
        UserError, match=r"pip install --editable '\.\[sql\]', or take the verifier"
    ):
        SqlGradedVerifier(database="x").programs("select 1", Problem("db", "?", "1", 1, "sql"))
