"""The verbs as a user types them."""

import json
import subprocess
import sys

import polars as pl
import pytest
from click.testing import CliRunner

from posttrain.cli.ledger import audit, ledger
from posttrain.cli.lineage import lineage
from posttrain.cli.rows import rows
from posttrain.provenance.ledger import ArtifactRecord, Run
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import digest_path


@pytest.fixture
def call(project, monkeypatch):
    monkeypatch.chdir(project.root)
    monkeypatch.delenv("POSTTRAIN_LEDGER", raising=False)

    def invoke(command, *arguments):
        return CliRunner().invoke(command, arguments, catch_exceptions=False)

    return invoke


def output(result, code=0):
    assert result.exit_code == code, result.output
    return result.stdout


def test_up_draws_a_tree_without_colors_into_a_pipe(call):
    text = output(call(lineage, "up", "v1"))
    assert text.startswith("release v1\n├── tuned: checkpoint ")
    assert "\x1b" not in text


def test_depth_and_limit_say_what_they_left_out(call):
    assert "4 more artifacts are not shown" in output(
        call(lineage, "up", "data/rl/tuned", "--depth", "1")
    )
    assert "6 more artifacts are not shown" in output(
        call(lineage, "up", "data/rl/tuned", "--limit", "1")
    )


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("g.json", "{"), ("g.mmd", "flowchart LR"),
        ("g.jsonl", '{"eventTime"'), ("g.html", "<!doctype html>"), ("g.txt", "checkpoint "),
    ],
)  # fmt: skip
def test_the_suffix_of_the_file_chooses_the_format(call, project, name, start):
    result = call(lineage, "up", "data/rl/tuned", "-o", name)
    assert output(result) == ""
    assert "12 nodes written to" in result.stderr
    assert (project.root / name).read_text().startswith(start)


def test_an_unknown_suffix_and_an_unwritable_place_are_said(call, project):
    with pytest.raises(UserError, match=r"no format has the suffix '.pdf'"):
        call(lineage, "up", "v1", "-o", "g.pdf")
    with pytest.raises(UserError, match="cannot write none/g.json"):
        call(lineage, "up", "v1", "-o", "none/g.json")
    assert call(lineage, "up", "v1", "--format", "svg").exit_code == 2


def test_path_and_impact(call):
    text = output(call(lineage, "path", "raw.jsonl", "data/curate/kept.parquet"))
    assert text.splitlines()[-1].endswith("raw.jsonl  3 B")
    assert "base" not in text
    text = output(call(lineage, "impact", "data/curate/kept.parquet"))
    assert text.splitlines()[1] == "  release v1"
    assert "4 stages must run again (36 s last time)" in text
    body = json.loads(output(call(lineage, "impact", "data/curate/kept.parquet", "--json")))
    assert [each["stage"] for each in body["rebuild"]] == ["curate", "sft", "rl", "evaluate"]


def test_diff_of_two_runs(call, project):
    project.ledger.append_run(Run("second", "gsm8k", 20.0), process="elsewhere 1 x")
    project.stage("second", "evaluate", ["tuned"], ["report"], metrics={"accuracy": 0.75})
    body = json.loads(output(call(lineage, "diff", "first", "latest", "--json")))
    assert body[0]["metrics"] == {"accuracy": {"before": 0.5, "after": 0.75}}
    text = output(call(lineage, "diff", "first", "second"))
    assert "0.75" in text
    assert "0 of 6 stages are equal" in text


def test_recall_lists_what_is_refused_and_withdraw_lifts_it(call):
    table = "data/synthesize/completions.parquet"
    text = output(call(lineage, "recall", table, "--reason", "bad judge", "--rows", "score < 0.5"))
    assert "1 row of data/synthesize/completions.parquet" in text
    assert "1 of 7 nodes after it are refused now" in text
    assert "data/curate/dropped.parquet" in text
    assert "(rows where score < 0.5)  bad judge" in output(call(lineage, "recalls"))
    assert "RECALLED" in output(call(lineage, "up", "data/curate/dropped.parquet"))
    output(call(lineage, "recall", table, "--reason", "fine", "--withdraw"))
    assert output(call(lineage, "recalls")) == "Nothing is recalled.\n"


def test_a_recall_says_who_made_it(call, monkeypatch):
    monkeypatch.setenv("POSTTRAIN_ACTOR", "ada")
    output(call(lineage, "recall", "raw.jsonl", "--reason", "leaked"))
    assert output(call(lineage, "recalls")).endswith("  leaked (ada)\n")


def test_the_licenses_of_all_that_went_in(call, project):
    # As the README of a folder says it that a stage read.
    (project.root / "models/mine").mkdir(parents=True)
    (project.root / "models/mine/README.md").write_text(
        "---\nlicense: mit\nbase_model: org/base\n---\n"
    )
    digest = digest_path(project.root / "models/mine").sha256
    record = ArtifactRecord("files.model", "source", "models/mine", digest, 1)
    project.records["mine"] = record
    project.stage("first", "import_model", ["mine"], ["report"])
    lines = output(call(lineage, "licenses", "import_model@first")).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["MIT", "model", "file", "mine", "import_model"],
        ["unknown", "org/base", "base", "of", "model", "import_model"],
        ["1", "license", "of", "2", "unknown."],
    ]


def test_recalling_no_rows_changes_nothing(call):
    table = "data/synthesize/completions.parquet"
    with pytest.raises(UserError, match="no row of .* has score > 9; nothing was recalled"):
        call(lineage, "recall", table, "--reason", "x", "--rows", "score > 9")
    assert output(call(lineage, "recalls")) == "Nothing is recalled.\n"


def test_rows_with_their_ancestors(call, project):
    text = output(
        call(rows, "data/curate/kept.parquet", "--where", "generator = 'large'", "--trace")
    )
    assert text.startswith(
        "1 row of data/curate/kept.parquet, made by curate@first with threshold=0.5"
    )
    assert "1 row of data/problems/problems.parquet, made by problems@first" in text
    result = call(
        rows, "data/curate/kept.parquet", "--trace", "--json",
        "--from", "synthesize: generator = 'small'", "--from", "problems: id = 'p1'",
    )  # fmt: skip
    body = json.loads(output(result))
    assert [row["id"] for row in body["head"]] == ["c1"]
    assert [step["table"] for step in body["trace"]] == [
        "data/synthesize/completions.parquet", "data/problems/problems.parquet",
    ]  # fmt: skip
    output(call(rows, "data/rl/rollouts.parquet", "--trace", "family", "-o", "out.parquet"))
    written = pl.read_parquet(project.root / "out.parquet")
    assert written.filter(pl.col("table") == "data/curate/kept.parquet")["id"].to_list() == [
        "c1",
        "c4",
    ]


def test_rows_refuses_what_makes_no_sense(call):
    with pytest.raises(UserError, match="--from needs --trace"):
        call(rows, "data/curate/kept.parquet", "--from", "x: y")
    with pytest.raises(UserError, match="write it as 'TABLE: SQL expression'"):
        call(rows, "data/curate/kept.parquet", "--trace", "--from", "synthesize")


def test_export_import_and_audit(call, project, tmp_path):
    assert "one set of outputs" in output(call(audit))
    output(call(ledger, "export", "all.jsonl"))
    copy = str(tmp_path / "copy.db")
    result = call(ledger, "import", "all.jsonl", "--ledger", copy)
    assert "8 new records" in result.stderr  # a run, six stage runs, a release
    assert output(call(lineage, "up", "v1", "--ledger", copy)) == output(call(lineage, "up", "v1"))
    assert output(call(ledger, "export", "-")) == (project.root / "all.jsonl").read_text()
    project.stage("second", "sft", ["kept", "base"], ["tuned"], key=_key(project, "sft"))
    text = output(call(audit), code=1)
    assert text.startswith(f"sft: key {_key(project, 'sft')[:12]} made 2 different results")


def _key(project, stage):
    return project.ledger.stage_run(f"first-{stage}").key


def test_outside_a_project_a_ledger_must_be_named(call, project, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(UserError, match="is not inside a posttrain project"):
        call(lineage, "up", "v1")
    at = str(project.root / ".posttrain" / "ledger.db")
    assert output(call(lineage, "up", "v1", "--ledger", at)).startswith("release v1")
    monkeypatch.setenv("POSTTRAIN_LEDGER", at)
    assert output(call(lineage, "up", "v1")).startswith("release v1")
    with pytest.raises(UserError, match="there is no ledger at nowhere.db"):
        call(lineage, "up", "v1", "--ledger", "nowhere.db")


def test_commands_of_the_graph_start_without_heavy_libraries():
    script = """
import sys
import posttrain.cli.impact
import posttrain.cli.lineage
print({"pydantic", "polars", "sqlalchemy", "rich", "dvc"} & {*sys.modules})
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
