"""The lines at which a trace ends: found through the graph, shown as they stand there."""

import polars as pl
import pytest

from posttrain.operations.row_origins import OriginLine, origin_lines, origin_places, passages_in
from posttrain.provenance.lineage.graph import Graph, Node
from posttrain.stage.hashing import digest_path


@pytest.fixture
def graph(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.csv").write_text('q,a\n"two\nlines",x\nlast,y\n')
    (tmp_path / "chats.jsonl").write_text('{"a":   1}\n{"a": 2}\n')
    nodes = {}
    for name in ("chats.jsonl", "mine"):
        facts = {"digest": digest_path(tmp_path / name).sha256}
        nodes[name] = Node(f"artifact:{name}", "artifact", "source", name, facts)
    return Graph("", nodes, ())


def test_parents_that_are_lines_and_origins_of_problems_are_places():
    rows = pl.DataFrame({"parents": [["0123456789abcdef", "../chats.jsonl:2"], [], None]})
    assert list(origin_places(rows)) == ["../chats.jsonl:2"]
    rows = pl.DataFrame({"origin_file": ["chats.jsonl", ""], "origin_line": [7, 0]})
    assert list(origin_places(rows)) == ["chats.jsonl:7"]
    assert list(origin_places(pl.DataFrame({"x": [1]}))) == []


def test_a_passage_that_a_problem_brought_along_is_found_by_its_number():
    told = ['{"facts": {"passages": ["1 key 2", "2 map 3"]}}', '{"exact": null}', "{}"]
    problems = pl.DataFrame({"id": ["a0", "b0", "c0"], "metadata": told})
    others = pl.DataFrame({"id": ["a0"], "text": ["7"]})
    places = ["a0:2", "a0:3", "b0:1", "c0:1", "a.jsonl:1", "a0:2"]
    assert passages_in([others, problems], places) == [OriginLine("a0:2", "2 map 3")]


def test_a_line_is_shown_as_it_stands_there(graph, tmp_path):
    places = ["../chats.jsonl:1", "mine/a.csv:4", "../chats.jsonl:1"]
    found = origin_lines(places, graph, tmp_path)
    assert [(line.where, line.text, line.remark) for line in found] == [
        ("../chats.jsonl:1", '{"a":   1}', ""),
        ("mine/a.csv:4", '{"q": "last", "a": "y"}', ""),
    ]


def test_a_file_that_changed_or_went_is_said_to_have(graph, tmp_path):
    (tmp_path / "chats.jsonl").write_text('{"b": 1}\n')
    (tmp_path / "mine" / "a.csv").unlink()
    lines = origin_lines(["chats.jsonl:1", "chats.jsonl:2", "mine/a.csv:2", "x:1"], graph, tmp_path)
    first, second, third, unknown = lines
    assert (first.text, first.remark) == (
        '{"b": 1}',
        "the file has changed since; this is its line of today",
    )
    assert second.text == ""
    assert "has no row 2 any more" in second.remark
    assert third.remark.startswith("cannot be shown: ")
    assert unknown.remark == "the ledger knows no such file among what it was made from"
