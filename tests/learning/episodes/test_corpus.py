"""A corpus of one's own is searched on demand, and a passage is known by its line."""

import os
from pathlib import Path

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.episodes.environments.base import POLICY, Act, Told
from posttrain.learning.episodes.environments.corpus import CorpusSearch
from posttrain.stage import declared
from posttrain.stage.errors import UserError

PROBLEM = Problem("own", "Who built the bridge?", "Ada", 1, "exact")
ROWS = '{"text": "The bridge was built by Ada."}\n\n{"text": "The mill burned\\n down."}\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a stage works: the recipe's folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.jsonl").write_text(ROWS)
    return tmp_path


def answered(text, *, cut=False, **settings):
    environment = CorpusSearch(**{"file": "notes.jsonl", **settings})
    first = environment.start(PROBLEM, 1)
    return environment.step(first.state, [Act(POLICY, text, cut)], 2)


@pytest.mark.usefixtures("folder")
def test_a_call_is_answered_by_the_best_passages_and_their_lines_are_read():
    found = answered("I look.\nsearch(Who built the bridge?) ", shown=1)
    assert found.asks[0].new == (Told("tool:search", "The bridge was built by Ada."),)
    assert (found.read, found.facts) == (("notes.jsonl:1",), {"searches": 1.0})
    # A passage is one line to read, and shorter if it is long.
    found = answered("search(mill)", author="user", most_characters=10)
    assert found.asks[0].new == (Told("user", "The mill b ..."),)
    assert found.read == ("notes.jsonl:3",)


def test_a_stage_reads_what_lies_beside_its_recipe(tmp_path, monkeypatch):
    monkeypatch.setattr(declared, "_folders", [Path()])
    (tmp_path / "notes.jsonl").write_text(ROWS)
    with pytest.raises(UserError, match="notes.jsonl is not there"):
        answered("search(mill)")
    declared.read_from(tmp_path)
    assert answered("search(mill)").read == ("notes.jsonl:3",)


@pytest.mark.usefixtures("folder")
def test_a_turn_without_a_call_is_the_answer_and_nothing_may_be_found():
    for said in ("Ada", "search(bridge) says Ada", "find(bridge)"):
        assert (answered(said).asks, answered(said).read) == ((), ())
    assert answered("search(bridge)", cut=True).asks == ()
    found = answered("search(zebra)")
    assert found.asks[0].new[0].text == "nothing found"
    assert (found.read, found.facts) == ((), {"searches": 1.0, "tool_errors": 1.0})
    assert answered("ask(bridge)", name="ask").read == ("notes.jsonl:1",)


def test_folders_of_text_are_read_and_what_changed_is_read_again(folder):
    (folder / "docs").mkdir()
    (folder / "docs" / "b.txt").write_text("nothing here\nthe bridge is old\n")
    assert answered("search(bridge)", file="docs").read == ("docs/b.txt:2",)
    (folder / "docs" / "a.txt").write_text("bridge\n")
    assert answered("search(bridge)", file="docs").read == ("docs/a.txt:1", "docs/b.txt:2")
    (folder / "docs" / "a.txt").write_text("ridges\n")
    os.utime(folder / "docs" / "a.txt", ns=(1, 1))
    assert answered("search(bridge)", file="docs").read == ("docs/b.txt:2",)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (None, "own.jsonl is not there; correct `file`"),
        ('{"body": "x"}', "own.jsonl:1 has no column 'text'; it has body"),
        ('{"text": 5}', "'text' of own.jsonl:1 is no text"),
        ('{"text": " "}', "own.jsonl holds no passage"),
        ("text", "own.jsonl:1: not JSON"),
    ],
)
def test_files_that_are_no_corpus_are_refused_in_a_sentence(folder, rows, sentence):
    if rows is not None:
        (folder / "own.jsonl").write_text(rows)
    with pytest.raises(UserError, match=sentence.replace(".", r"\.")):
        answered("search(x)", file="own.jsonl")
