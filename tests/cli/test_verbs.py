"""What each verb does, prints and exits with, on a project of three small stages."""

import json
import re
import sqlite3
import subprocess
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner
from filelock import FileLock

from posttrain.cli.main import VERBS, cli
from posttrain.operations import plan_notes
from posttrain.operations.services import process
from posttrain.operations.services.plan import FOLDER
from posttrain.operations.services.process import Service
from posttrain.pipeline.execution import local
from posttrain.pipeline.execution.failures import ServerFailed, StageFailed, raise_all
from posttrain.pipeline.plan import Decision
from posttrain.provenance.ledger import open_ledger
from posttrain.publishing.release.registry import Registry
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError

HEAVY = {"torch", "transformers", "datasets", "polars", "numpy", "prefect", "mlflow", "dvc"}
AUTHOR = ("-c", "user.name=me", "-c", "user.email=me@here")
NAMES = [name for section in VERBS.values() for name in section]


def commands(command, words=()):
    """Every command below one, with the words that call it."""
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*words, name))


@pytest.mark.parametrize(
    ("words", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in commands(cli)]
)
def test_every_command_explains_itself_and_its_options(words, command):
    shown = CliRunner().invoke(cli, [*words, "--help"])
    assert shown.exit_code == 0
    assert shown.output.startswith(" ".join(["Usage: cli", *words]))
    assert "\\b" not in shown.output
    assert command.help.splitlines()[0] in " ".join(shown.output.split())
    options = [each for each in command.params if isinstance(each, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_examples_stand_below_the_options_line_by_line():
    shown = CliRunner().invoke(cli, ["lineage", "diff", "--help"]).output
    text, _, examples = shown.partition("\n  Examples:\n")
    assert "Options:" in text
    assert examples.splitlines() == [
        "    posttrain lineage diff latest~1 latest   the last run against the one before",
        "    posttrain lineage diff 20261121-06 latest",
    ]
    assert "\n    rl: {temperature:" in CliRunner().invoke(cli, ["parts", "--help"]).output


@pytest.mark.parametrize("verb", ["plan", "status"])
def test_what_looks_at_a_recipe_imports_nothing_that_runs_it(toy, verb):
    done = toy.cli(verb, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 0, done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "posttrain.pipeline.execution.lockstate" in imported
    runs = {"posttrain.pipeline.execution.executor", "multiprocessing.forkserver"}
    assert (HEAVY - {"dvc"} | {"dvc.repo"} | runs) & imported == set()


def test_the_verbs_are_listed_by_section_and_nothing_is_asked_of_nobody():
    listed = CliRunner().invoke(cli, ["--help"]).output
    assert [
        word for word in re.findall(r"^  ([\w-]+)  +\w", listed, re.MULTILINE) if word in NAMES
    ] == (NAMES)
    assert CliRunner().invoke(cli, []).exit_code == 2


def test_run_says_what_ran_and_why_and_the_next_time_that_there_is_nothing_to_do(
    toy, posttrain, contents
):
    first = posttrain("run", "--local")
    assert first.code == 0
    for name in ("first", "second", "third"):
        assert f"{name}: running (it never ran)\n" in first.err
        assert re.search(rf"^{name}: ran in [0-9.]+ s$", first.err, re.MULTILINE)
        assert re.search(rf"^ {name} +succeeded +[0-9.]+ s +result", first.out, re.MULTILINE)
    assert re.search(r"^report.html · done in [0-9.]+ s$", first.err, re.MULTILINE)
    assert set(contents()) >= {"dvc.yaml", "params.yaml", "dvc.lock", "report.html"}

    before = contents()
    again = posttrain("run", "--local")
    assert again.code == 0
    assert again.err.startswith("Everything is up to date: 3 stages, nothing to run.\n")
    assert contents() == before


def test_what_several_stages_refused_is_a_line_each(posttrain, monkeypatch):
    def fail(_executor, names, *, slots):
        failures = (StageFailed(n, "a\nb", retryable=False, refused=True) for n in names[:2])
        raise_all(failures)

    monkeypatch.setattr(local, "run_locally", fail)
    said = posttrain("run", "--local")
    assert said.code == 2
    # What a sentence holds itself is escaped as ever.
    assert said.err.splitlines() == [
        r"error: stage 'first': a\nb",
        r"error: stage 'second': a\nb",
    ]


def test_a_server_that_is_not_there_is_no_bad_input(posttrain, monkeypatch):
    def fail(_executor, _names, *, slots):
        raise ServerFailed("the server did not answer in time")

    monkeypatch.setattr(local, "run_locally", fail)
    said = posttrain("run", "--local")
    assert (said.code, said.err) == (1, "error: the server did not answer in time\n")


def test_plan_says_what_somebody_should_know_of_the_values(posttrain, monkeypatch):
    monkeypatch.setattr(StageConfig, "remarks", lambda self: ("it is small",))
    assert "note: first, second, third: it is small\n" in posttrain("plan").out


def test_run_with_set_does_what_depends_on_it_and_plan_had_said_so(posttrain):
    posttrain("run", "--local")
    change = ("--set", "second.amount=5")
    planned = posttrain("plan", *change)
    actions = {line.split()[0]: line for line in planned.out.splitlines()[1:4]}
    assert "up to date" in actions["first"]
    assert "parameter amount changed from 1 to 5" in actions["second"]
    assert " maybe " in actions["third"]
    changed = posttrain("run", "--local", *change)
    assert "first: up to date\n" in changed.err
    assert "second: running (parameter amount changed from 1 to 5)\n" in changed.err
    assert "third: running (input source has other bytes" in changed.err


def test_run_from_and_only(toy, posttrain):
    posttrain("run", "--local")
    again = posttrain("run", "--local", "--from", "second")
    assert "first: up to date\n" in again.err
    assert "second: running (asked for on the command line)\n" in again.err
    toy.recipe("second: {amount: 5}\nthird: {amount: 5}\n")
    alone = posttrain("run", "--local", "--only", "third")
    assert [line.split(":")[0] for line in alone.err.splitlines()[:2]] == ["third", "third"]
    made = json.loads((toy.root / "data/third/result.json").read_text())
    assert made == {"sum": 2 + 5}


def test_a_stage_that_fails_ends_the_run_with_1_and_the_next_run_goes_on(toy, posttrain):
    toy.recipe("second: {mood: fail}\n")
    failed = posttrain("run", "--local")
    assert failed.code == 1
    complaint = "error: stage 'second' failed: RuntimeError: told to fail; log: "
    (line,) = (line for line in failed.err.splitlines() if line.startswith("error"))
    assert line.startswith(complaint)
    assert "RuntimeError: told to fail" in Path(line.removeprefix(complaint)).read_text()
    assert "Once that is mended, run the same command again: finished stages are kept" in failed.err
    assert "Traceback" not in failed.err
    assert "third: " not in failed.err
    toy.recipe()
    assert "first: up to date\n" in posttrain("run", "--local").err


def test_compile_writes_what_differs_and_check_writes_nothing(toy, posttrain, contents):
    missing = posttrain("compile", "--check")
    assert missing.code == 2
    assert missing.sentence == (
        f"dvc.yaml and params.yaml in {toy.root} are stale; run posttrain compile"
    )
    assert not (toy.root / "dvc.yaml").exists()
    assert posttrain("compile").out == "wrote dvc.yaml and params.yaml\n"
    assert posttrain("compile").out == "nothing changed\n"
    assert posttrain("compile", "--check").out == "dvc.yaml and params.yaml are up to date.\n"
    assert "cmd: python -m posttrain stage run second" in (toy.root / "dvc.yaml").read_text()

    toy.recipe("second: {amount: 5}\n")
    before = contents()
    assert posttrain("compile", "--check").code == 2
    assert contents() == before
    posttrain("compile")
    assert "second:\n  amount: 5\n" in (toy.root / "params.yaml").read_text()
    assert posttrain("compile", "--check").code == 0


def test_stage_run_executes_one_stage_by_params_yaml_up_to_date_or_not(toy, posttrain, edit):
    assert posttrain("stage", "run", "first").sentence.startswith(
        "there is no recipe at params.yam"
    )
    posttrain("compile")
    missing = posttrain("stage", "run", "second")
    assert missing.code == 2
    assert missing.sentence.startswith("data/first/result.json does not exist; run stage 'first' f")
    for _ in range(2):
        done = posttrain("stage", "run", "first")
        assert done.code == 0
        assert done.err.startswith("first: running (asked for on the command line)\nfirst: ran in ")
    edit(toy.root / "params.yaml", "second:\n  amount: 1", "second:\n  amount: 5")
    assert posttrain("stage", "run", "second").code == 0
    assert json.loads((toy.root / "data/second/result.json").read_text()) == {"sum": 6}
    unknown = posttrain("stage", "run", "secnd")
    assert unknown.sentence == "there is no stage 'secnd'; did you mean 'second'?"
    toy.recipe("third: {mood: fail}\n")
    posttrain("compile")
    assert posttrain("stage", "run", "third").code == 1


def test_audit_finds_the_stage_that_one_key_gave_two_results(toy, posttrain, edit):
    stage = toy.root / toy.package / "stage.py"
    edit(stage, "total = add(", "total = time.time_ns() if config.label else add(")
    toy.recipe("second: {label: clock}\n")
    posttrain("run", "--local")
    assert posttrain("audit").out == "Every key ever executed has made one set of outputs.\n"
    again = posttrain("run", "--local", "--from", "second")
    assert "warning: stage 'second' has made 2 different outputs from the same key" in again.err
    found = posttrain("audit")
    assert found.code == 1
    assert re.match(r"second: key [0-9a-f]{12} made 2 different results: ", found.out)
    assert "not reproducible, or something that no key knows differed (" in found.out
    assert "third" not in found.out


def test_the_ledger_moves_and_lineage_reads_it_there(toy, posttrain):
    posttrain("run", "--local", "--set", "second.amount=5")
    exported = posttrain("ledger", "export", "all.jsonl")
    assert exported.err == "4 records written to all.jsonl\n"
    lines = (toy.root / "all.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == ["ledger", "run", "stage_run", "stage_run", "stage_run"]
    assert posttrain("ledger", "export", "-").out.splitlines() == lines
    assert posttrain("ledger", "import", "all.jsonl").err == "0 new records\n"
    assert posttrain("ledger", "import", "all.jsonl", "--ledger", "copy.db").err == (
        "4 new records\n"
    )
    ours, theirs = (
        posttrain("lineage", "up", "third@latest", *at) for at in ([], ["--ledger", "copy.db"])
    )
    assert ours == theirs
    stages = re.findall(r"(\w+)@\d{8}-\d{6}-\w{6}", ours.out)
    assert stages == ["third", "second", "first"]
    assert "data/second/result.json" in ours.out
    assert posttrain("lineage", "up", "thrid@latest").code == 2
    (toy.root / "all.jsonl").write_text("\n".join([*lines, "{"]))
    spoilt = posttrain("ledger", "import", "all.jsonl", "--ledger", "other.db")
    assert spoilt.code == 2
    assert "all.jsonl line 6 is damaged" in spoilt.sentence
    assert posttrain("ledger", "import", "nowhere.jsonl").code == 2


@pytest.mark.slow
def test_mlflow_is_rebuilt_from_the_ledger(toy, posttrain, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    posttrain("run", "--local")
    posttrain("run", "--local", "--set", "third.amount=5")
    for words in (
        ("commit", "--allow-empty", "--message", "one"),
        *(("tag", "--annotate", f"toy@v1.{minor}.0", "--message", "x") for minor in (0, 1)),
        ("tag", "--annotate", "toy#prod#1", "--message", "version: v1.1.0"),
        ("tag", "--annotate", "toy#prod#2", "--message", "version: v1.0.0"),
    ):
        subprocess.run(["git", *AUTHOR, *words], cwd=toy.root, check=True, capture_output=True)
    database = toy.write(".posttrain/mlflow.db", "no database any more")
    rebuilt = posttrain("mlflow", "rebuild")
    assert (rebuilt.code, rebuilt.out) == (0, "rebuilt 4 stage runs and 2 releases\n")
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        ids = sorted(run.id for run in ledger.runs())
    with sqlite3.connect(database) as view:

        def column(query):
            return [value for (value,) in view.execute(query)]

        names = column("SELECT name FROM runs ORDER BY name")
        assert names == ["chain", "chain", "first", "second", "third", "third"]
        assert column("SELECT value FROM tags WHERE key = 'posttrain.run' ORDER BY value") == ids
        assert column("SELECT value FROM metrics WHERE key = 'sum' ORDER BY value") == [1, 2, 3, 7]
        versions = "SELECT value FROM model_version_tags WHERE key = 'posttrain.release'"
        assert sorted(column(versions)) == ["v1.0.0", "v1.1.0"]
        aliased = (
            f"{versions} AND version = (SELECT version FROM registered_model_aliases"
            " WHERE name = 'toy' AND alias = 'prod')"
        )
        assert column(aliased) == ["v1.0.0"]
    before = database.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(Registry, "assign", refuse)
        failed = posttrain("mlflow", "rebuild")
    assert (failed.code, failed.sentence) == (2, "no alias today")
    assert database.read_bytes() == before
    assert sorted(path.name for path in database.parent.glob("mlflow*.db*")) == ["mlflow.db"]

    # A store that is not ours cannot be replaced: it lacks releases, and gets those alone.
    theirs = toy.root / "theirs.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{theirs}")
    registry = Registry(toy.root / ".posttrain")
    with pytest.raises(UserError, match="posttrain mlflow rebuild adds it"):
        registry.require("toy", "v1.0.0")
    added = posttrain("mlflow", "rebuild")
    assert added.out.startswith(f"2 releases at sqlite:///{theirs}, which MLFLOW_TRACKING_URI ")
    registry.require("toy", "v1.0.0")
    assert registry.assigned("toy", "prod") == "v1.0.0"
    with sqlite3.connect(theirs) as view:
        assert view.execute("SELECT count(*) FROM runs").fetchone() == (0,)
    assert database.read_bytes() == before


def refuse(*_):
    raise UserError("no alias today")


def test_mlflow_is_not_rebuilt_under_a_server_or_a_run(toy, posttrain, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    database = toy.write(".posttrain/mlflow.db", "as it is")
    services = toy.root / FOLDER
    process.start(Service("mlflow", ("sleep", "60"), {}, ""), services, toy.root)
    try:
        said = posttrain("mlflow", "rebuild")
    finally:
        process.end(services, "mlflow", grace=5)
    assert said.code == 2
    assert said.sentence.startswith("MLflow's server is up and serves .posttrain/mlflow.db: ")
    assert "posttrain down first" in said.sentence
    with FileLock(toy.root / ".posttrain" / "lock-recipes-other"):
        said = posttrain("mlflow", "rebuild")
    assert said.sentence.startswith("a command is at work that may write to .posttrain/mlflow.db")
    assert database.read_text() == "as it is"
    assert posttrain("mlflow", "rebuild").out == "rebuilt 0 stage runs\n"


def test_plan_says_what_auto_is_where_the_policy_is_in_place(tmp_path):
    """By hand: 99% of 40 tokens and a quarter are 50, in eights 56."""
    (tmp_path / "policy").mkdir()
    lengths = {"answer_tokens": {"sums": [40] * 11}}
    (tmp_path / "policy" / "config.json").write_text(json.dumps({"posttrain": lengths}))
    fed = {"policy": SimpleNamespace(stage="sft", output="policy")}
    stages = {
        "sft": SimpleNamespace(
            config=SimpleNamespace(), outputs=lambda: {"policy": PurePosixPath("policy")}
        ),
        "probe": SimpleNamespace(config=SimpleNamespace(max_tokens="auto"), inputs=fed),
        "other": SimpleNamespace(config=SimpleNamespace(max_tokens=72), inputs=fed),
    }
    session = SimpleNamespace(
        dag=SimpleNamespace(stages=stages),
        workspace=SimpleNamespace(output=lambda path: tmp_path / path),
    )
    made, stale = (Decision("sft", action, ()) for action in ("cached", "run"))
    assert list(plan_notes._limits(session, [made])) == [
        "probe: max_tokens auto is 56, as 99% of the answers that the policy was taught have at"
        " most 40 tokens, those of sums"
    ]
    assert list(plan_notes._limits(session, [stale])) == []
