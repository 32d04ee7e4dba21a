"""Questions about tables: what queries are told, what pays, and what no query may do."""

import json
from random import Random

import pytest

from posttrain.backends.sandbox.lookups import looked_up
from posttrain.backends.sandbox.program import ProgramEnd
from posttrain.learning.episodes.environments.base import POLICY, Act, Said
from posttrain.learning.episodes.worlds import sql as module
from posttrain.learning.episodes.worlds.sql import Sql

TABLE = {"name": "item", "columns": ["id", "kind"], "rows": [[1, "pen"], [2, "cup"], [3, "pen"]]}
FACTS = {"tables": [TABLE], "query": "select max(id) from item", "answer": "3", "left": 2}
WORLD = Sql()


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Let what would run in a sandbox run in this process, and count the programs."""
    programs = []

    def run(asked):
        programs.extend(asked)
        found = [[looked_up(**each) for each in json.loads(every.stdin)] for every in asked]
        return [ProgramEnd("exit", 0, json.dumps(each).encode(), b"", 0.0) for each in found]

    monkeypatch.setattr(module, "run_fairly", run)
    monkeypatch.setattr(module, "_known", type(module._known)())
    return programs


def said(state, text, **how):
    return WORLD.step(state, [Act(POLICY, text, **how)], 0)


def begun():
    return WORLD.begin(FACTS, 0).state


def told(situation):
    return situation.asks[0].new[0].text


def test_rows_are_read_and_the_answer_pays():
    read = said(begun(), "select id, kind from item where kind = 'pen' order by id desc")
    assert told(read) == "3|pen\n1|pen"
    assert said(read.state, " 3\n").earned == {POLICY: 1.0}
    assert said(read.state, "4").earned == {}


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("select null, 0.5, x'00ff'", "null|0.5|00ff"),
        ("select id from item where id > 9", "no rows"),
        ("select a from item", "no such column: a"),
        ("select 1; select 2", "You can only execute one statement at a time."),
        ("select random()", "not authorized to use function: random"),
        ("select date('now')", "not authorized to use function: date"),
        ("select load_extension('x')", "not authorized to use function: load_extension"),
        ("select count(*) from " + ", ".join(f"item t{n}" for n in range(20)), "interrupted"),
        ("select a.id from item a, item b", "1\n1\n1\n2\n2\n2\n3\n3\n..."),
        ("select '\ud800'", "'utf-8' codec can't encode character '\\ud800' in position 8"),
    ],
)
def test_what_a_query_is_told(query, text):
    found = told(said(begun(), query))
    assert found.startswith(text)
    assert len(found) <= 220


@pytest.mark.parametrize(
    "query",
    ["delete from item", "attach 'x' as y", "pragma table_info(item)", "create table z (a)"],
)
def test_nothing_else_is_a_query_and_none_would_be_allowed(query):
    assert said(begun(), query).asks == ()
    assert looked_up([TABLE], query, 9)[1] == "not authorized"


def test_queries_run_out_and_what_was_cut_off_is_no_query():
    assert said(begun(), "select 1", cut=True).asks == ()
    last = said(said(begun(), "select 1").state, "SELECT\n2")
    assert told(last) == "2"
    assert said(last.state, "select 3").asks == ()


def test_queries_of_a_round_share_sandboxes_and_the_script_needs_none(here):
    state = begun()
    found = WORLD.step_all([Said(state, [Act(POLICY, f"select {n}")], 0) for n in range(40)])
    assert [told(each) for each in found] == [str(n) for n in range(40)]
    assert len(here) == 2
    assert told(said(state, WORLD.best_move(state, POLICY, Random(0)))) == "3"
    assert len(here) == 2


def test_one_query_that_ends_its_sandbox_is_told_so_and_others_are_answered(here, monkeypatch):
    run = module.run_fairly

    def dies(asked):
        return [
            ProgramEnd("lost", None, b"", b"", 0.0) if b"666" in each.stdin else run([each])[0]
            for each in asked
        ]

    monkeypatch.setattr(module, "run_fairly", dies)
    turns = [Said(begun(), [Act(POLICY, f"select {n}")], 0) for n in (1, 666, 2)]
    assert [told(each) for each in WORLD.step_all(turns)] == ["1", "stopped", "2"]
    monkeypatch.setattr(module, "run_fairly", lambda asked: [None] * len(asked))
    assert all(each.failed for each in WORLD.step_all(turns))


def test_the_answer_is_what_the_query_gives_by_hand():
    for seed in range(30):
        _, facts = Sql(tables=1).pose(Random(seed))
        (table,) = facts["tables"]
        aggregate = {"sum": sum, "max": max, "min": min}[facts["query"][7:10]]
        value = facts["query"].split("'")[1]
        assert facts["answer"] == str(aggregate(row[2] for row in table["rows"] if row[1] == value))


@pytest.mark.usefixtures("sandboxed")
def test_in_a_sandbox_it_is_the_same(monkeypatch):
    from posttrain.learning.episodes.environments.sandboxed import run_fairly

    monkeypatch.setattr(module, "run_fairly", run_fairly)
    turns = [Said(begun(), [Act(POLICY, f"select {n}, kind from item")], 0) for n in (1, 2)]
    assert told(WORLD.step_all(turns)[1]) == "2|pen\n2|cup\n2|pen"
