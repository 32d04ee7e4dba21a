"""`posttrain data inspect`: what it prints, with and without a model, and how it refuses."""

import json
import time

import pytest
from click.testing import CliRunner

from posttrain.cli.main import cli, main
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import save_policy
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.stage.errors import UserError


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    tokenizer = train_tokenizer(["five is 2 + 3"] * 20, vocab_size=270)
    path = tmp_path_factory.mktemp("model") / "policy"
    save_policy(build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0), tokenizer, path)
    return path


@pytest.fixture
def said(monkeypatch, capfd, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["posttrain", "data", "inspect", *map(str, arguments)])
        main()
        return capfd.readouterr().out

    return call


def write(tmp_path, *rows):
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_it_says_what_is_read_how_long_it_is_and_shows_a_row(said, tmp_path, model):
    rows = [{"prompt": f"{n}?", "completion": "[b]five\x1b\n", "id": n} for n in range(3)]
    write(tmp_path, *rows, rows[0])
    out = said("rows.jsonl", "--model", model).splitlines()
    assert out[:2] == [
        "rows.jsonl: 4 rows",
        "read as prompt_completion: prompt, completion; not read: id",
    ]
    assert [line.split() for line in out[2:4]] == [
        ["3", "usable", "conversations"],
        ["1", "left", "out:", "duplicate"],
    ]
    assert "  0 of 3 rows (0.0%) are longer than max_length auto, the default (512)" in out
    # The prompt's tokens and its border bear no loss; the answer's and the end do. Nothing that a
    # terminal would obey goes out, and what looks like markup stays as it is.
    assert out[-2:] == ["  - <bos>|0|?|\\n", "  + [|b|]|five|\\x1b|<eos>"]
    assert "\x1b" not in "".join(out)


def test_without_a_model_it_counts_characters(said, tmp_path):
    write(tmp_path, {"question": "2 + 3?", "answer": 5})
    out = said("rows.jsonl")
    assert "lengths in characters" in out
    assert "give --model DIR for lengths in tokens" in out


def test_the_limits_of_a_recipe_count(said, tmp_path, model):
    write(tmp_path, {"prompt": "2 + 3?", "completion": "five is five"})
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "recipe.yaml").write_text(
        "flow: flows.own_chats\nformat: 3\n"
        f"import_model: {{path: {model}}}\n"
        "import_chats: {sources: [{path: rows.jsonl}]}\nsft: {max_length: 8}\n"
    )
    out = said("rows.jsonl", "--recipe", "recipe.yaml")
    assert "  1 of 1 rows (100.0%) are longer than sft.max_length (8)" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["none.jsonl"], "error: none.jsonl is not there; give the path of a file"),
        (["rows.jsonl"], "error: rows.jsonl: no format has the columns a"),
        (["rows.jsonl", "--as", "alpacca"], "error: --as alpacca: there is no format 'alpacca'"),
        (["rows.jsonl", "--column", "prompt=a"], "error: --column maps a column of a format"),
        (["rows.jsonl", "--as", "text", "--column", "a"], "error: --column 'a': write it as"),
        (
            ["rows.jsonl", "--as", "text", "--column", "text=b"],
            "error: rows.jsonl: there is no column 'b' for text",
        ),
    ],
)
def test_what_is_refused_is_one_sentence(said, tmp_path, capfd, arguments, sentence):
    write(tmp_path, {"a": "x"})
    with pytest.raises(SystemExit) as stopped:
        said(*arguments)
    assert stopped.value.code == 2
    out, err = capfd.readouterr()
    assert err.startswith(sentence)
    assert (out, err.count("\n")) == ("", 1)


def test_a_mapped_column_is_read(said, tmp_path):
    write(tmp_path, {"a": {"b": "x"}})
    assert "read as text: text (a.b)" in said("rows.jsonl", "--as", "text", "--column", "text=a.b")


def test_the_help_is_quick_and_shows_examples():
    began = time.process_time()
    done = CliRunner().invoke(cli, ["data", "inspect", "--help"])
    assert "posttrain data inspect chats.jsonl --model" in done.output
    assert time.process_time() - began < 0.3


def test_broken_lines_are_named_after_what_could_be_shown(tmp_path):
    good = [json.dumps({"prompt": f"{n}?", "completion": "five"}) for n in range(4)]
    lines = [good[0], "{", good[1], "[1]", good[2], '{"prompt": 1}', good[3]]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    done = CliRunner().invoke(cli, ["data", "inspect", str(tmp_path / "rows.jsonl")])
    assert isinstance(done.exception, UserError)  # for which the program exits with 2
    assert "rows.jsonl: 3 of 7 rows cannot be read" in str(done.exception)
    assert "rows.jsonl:2: not JSON" in str(done.exception)
    assert "rows.jsonl: 7 rows" in done.output
    assert "  4  usable" in done.output.replace("   ", "  ")
    complaints = [line for line in done.output.splitlines() if "rows.jsonl:" in line][1:]
    assert [line.partition("rows.jsonl:")[2][:1] for line in complaints] == ["2", "4", "6"]
    assert "lengths in characters" in done.output


def test_a_file_of_broken_lines_alone_is_refused_for_the_first_of_them(tmp_path):
    (tmp_path / "rows.jsonl").write_text('"hello"\n{\n')
    done = CliRunner().invoke(cli, ["data", "inspect", str(tmp_path / "rows.jsonl")])
    assert str(done.exception).endswith("rows.jsonl:1: a row must be a JSON object, got 'hello'")


def test_columns_inside_of_others_are_suggested_as_they_are_written(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"id": 1, "meta": {"question": "2 + 3?", "answer": "5"}}) + "\n")
    done = CliRunner().invoke(cli, ["data", "inspect", str(rows)])
    said = "--as question_answer --column question=meta.question --column answer=meta.answer"
    assert str(done.exception).endswith(said)
    done = CliRunner().invoke(cli, ["data", "inspect", str(rows), *said.split()])
    assert done.exit_code == 0


def test_the_conversation_counts_in_the_whole_row_without_a_model_too(said, tmp_path):
    turns = ["one", "four", "three", "seventeen"]
    roles = ["user", "assistant"] * 2
    messages = [{"role": r, "content": t} for r, t in zip(roles, turns, strict=True)]
    write(tmp_path, {"messages": messages})
    (line,) = [line for line in said("rows.jsonl").splitlines() if "whole row" in line]
    assert line.split()[2:] == ["21"] * 3  # 3 + 4 + 5 + 9


def test_rows_that_the_template_does_not_write_are_left_out_with_the_reason(said, tmp_path, model):
    call = {"function": {"name": "look", "arguments": {}}}
    row = {
        "messages": [
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "sunny"},
            {"role": "assistant", "content": "Sunny."},
        ]
    }
    write(tmp_path, row)
    out = " ".join(said("rows.jsonl", "--model", model).split())
    assert "0 usable conversations" in out
    assert "1 left out: a model without a template does not write the assistant's calls" in out
