"""What `posttrain rows` says above the rows."""

import json
import shutil
import sys
from os import terminal_size

import polars as pl
import pytest

from posttrain.cli.row_turns import print_turns
from posttrain.cli.rows import _heading, _print_rows
from posttrain.provenance.lineage.graph import Node
from posttrain.stage.errors import UserError


def maker(**params):
    facts = {"run": "r"} | {f"param {name}": value for name, value in params.items()}
    return Node("s", "stage", "tasks.synthesize", "synthesize", facts)


def test_a_long_parameter_is_cut_and_a_short_one_is_whole():
    said = _heading(1, "a.parquet", maker(sources="[" + "x" * 200, num_problems="6000"), 200)
    assert said == (
        f"1 row of a.parquet, made by synthesize@r with sources=[{'x' * 56}..., num_problems=6000"
    )


def test_a_heading_names_as_many_parameters_as_fit_on_its_line():
    made = maker(**{f"p{index}": str(index) for index in range(10, 60)})
    # 52 letters come before the parameters, 8 are in each with its comma, 7 in "NN more".
    for width in (80, 120, 500):
        said = _heading(2, "data/a.parquet", made, width)
        named = said.partition(" with ")[2].split(", ")
        fits = min(50, (width - 52 - 7) // 8)
        assert len(said) <= width
        assert named[:1] == ["p10=10"]
        assert [each for each in named if "=" in each] == [
            f"p{index}={index}" for index in range(10, 10 + fits)
        ]
        assert (named[-1] == f"{50 - fits} more") == (fits < 50)


def test_where_no_parameter_fits_their_number_does_and_the_stage_is_always_named():
    made = maker(sources="x" * 50, num_problems="6" * 50)
    bare = "2 rows of a.parquet, made by synthesize@r"
    assert _heading(2, "a.parquet", made, 53) == f"{bare} with 2 more"
    assert _heading(2, "a.parquet", made, 52) == bare
    assert _heading(2, "a.parquet", made, 20) == bare
    assert _heading(2, "a.parquet", None, 20) == "2 rows of a.parquet"


def test_rows_fit_the_terminal(monkeypatch, capsys):
    rows = pl.DataFrame({name: ["x" * 100, "y\n"] for name in ("id", "prompt", "text")})
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: terminal_size((60, 24)))
    _print_rows(rows)
    table = capsys.readouterr().out.splitlines()
    assert max(map(len, table)) <= 60
    assert table[1].split("┆")[1].strip() == "prompt"
    # Three columns of ten letters each cannot be read: each row by itself.
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: terminal_size((30, 24)))
    _print_rows(rows)
    assert capsys.readouterr().out.splitlines() == [
        "id      '" + "x" * 21, "prompt  '" + "x" * 21, "text    '" + "x" * 21,
        "", "id      'y\\n'", "prompt  'y\\n'", "text    'y\\n'",
    ]  # fmt: skip


def test_rollouts_are_shown_turn_by_turn(tmp_path, capsys):
    spans = [
        {"begin": 0, "end": 2, "turn": 0, "drawn": False},
        {"begin": 2, "end": 3, "turn": 0, "drawn": True},
        {"begin": 3, "end": 4, "turn": 1, "drawn": False},
        {"begin": 4, "end": 6, "turn": 1, "drawn": True},
    ]
    row = {
        "id": "ab", "step": 3, "role": "policy", "token_ids": [7, 8, 9, 10, 11, 12], "end": "over",
        "spans": spans, "turns": [{"earned": 0.25, "key": "k1"}, {"earned": 0.0, "key": "k2"}],
        "advantages": [0.5, -1.0, -2.0], "trained": True, "reward": 0.25,
    }  # fmt: skip
    print_turns(pl.DataFrame([row]), tmp_path / "rollouts.parquet")
    said = capsys.readouterr()
    title, *lines = said.out.splitlines()
    assert title == "ab: step 3, reward 0.25, ended: over, learned from"
    assert [" ".join(line.split()) for line in lines] == [
        "policy reads 7 8 (2 tokens)",
        "policy 9 (1 token, earned 0.25, advantage +0.50, at k1)",
        "policy reads 10 (1 token)",
        "policy 11 12 (2 tokens, advantage -1.50, at k2)",
    ]
    assert "shown by their numbers" in said.err
    with pytest.raises(UserError, match="of rollouts or completions: it has no column role"):
        print_turns(pl.DataFrame({"id": ["ab"]}), tmp_path / "problems.parquet")


def test_completions_are_shown_turn_by_turn(tmp_path, capsys):
    between = [{"role": "assistant", "content": "3"}, {"role": "user", "content": "lower\nmuch"}]
    row = {"id": "ab", "prompt": "1 to 3", "text": "1", "score": 0.5, "reason": ""}
    written = json.dumps({"system": "Guess.", "between": between})
    rows = [row | {"context": written}, row | {"context": "", "reason": "not_solved"}]
    print_turns(pl.DataFrame(rows), tmp_path / "completions.parquet")
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert said == [
        "ab: score 0.5", "system Guess.", "user 1 to 3", "assistant 3", "user lower", "much",
        "assistant 1", "", "ab: score 0.5, not_solved", "user 1 to 3", "assistant 1",
    ]  # fmt: skip
