"""Surroundings that are wrong: one sentence, exit code 2, nothing written, and others unharmed."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BROKEN = {
    "def (": "SyntaxError: invalid syntax",
    "import nowhere_to_be_found": "ModuleNotFoundError: No module named 'nowhere_to_be_found'",
    "raise ValueError('of the flow')": "ValueError: of the flow",
    "raise SystemExit('of the flow')": "SystemExit: of the flow",
}


@pytest.mark.parametrize("line", BROKEN)
def test_a_broken_flow_breaks_the_recipes_that_name_it_alone(toy, posttrain, contents, line):
    package = toy.flow.partition(".")[0]
    name = f"broken{list(BROKEN).index(line)}"
    toy.write(f"{package}/{name}.py", f"{line}\n")
    toy.write("recipes/other/recipe.yaml", f"flow: {package}.{name}\n")
    before = contents()
    refused = posttrain("plan", "recipes/other")
    assert refused.code == 2
    assert refused.sentence == (
        f"recipes/other/recipe.yaml: the flow '{package}.{name}' cannot be imported: {BROKEN[line]}"
        f" ({package}/{name}.py:1); correct that line"
    )
    assert posttrain("plan").code == 0
    assert contents() == before


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("def declare(build):\n    pass\n", "recipe.yaml: the flow 'FLOW' declares no stage; call"),
        ("def declare():\n    pass\n", "FLOW declares no DAG: it needs a function declare(build)"),
        (
            "from PACKAGE import TASK\ndef declare(build):\n    build.stage('../x', TASK)\n",
            "recipe.yaml: flow 'FLOW': '../x' is no name for a stage; use letters, digits, '-' and",
        ),
        # The line to correct is the flow's, and none of ours.
        (
            "def declare(build):\n    build.stage('x', None)\n",
            "recipe.yaml: declare of the flow 'FLOW' fails: AttributeError: 'NoneType' object has"
            " no attribute 'config' (FILE:2); correct that line",
        ),
    ],
)
def test_a_flow_that_declares_what_cannot_be(toy, posttrain, contents, body, said):
    flow = toy.flow.replace("chain", "odd")
    file = f"{flow.replace('.', '/')}.py"
    toy.write(file, body.replace("PACKAGE", toy.package))
    toy.recipe(f"flow: {flow}\nrun: {{threads: 1}}\n")
    before = contents()
    refused = posttrain("plan")
    assert refused.code == 2
    assert refused.sentence.startswith(said.replace("FLOW", flow).replace("FILE", file))
    assert contents() == before


def test_a_name_that_holds_the_end_of_a_line_leaves_one_line(posttrain):
    said = "there is no recipe at a\\nb\\x1b[2K; name a recipe file or a folder that has one"
    assert posttrain("plan", "a\nb\x1b[2K").sentence == said


def test_what_a_stage_returns_is_metrics(toy, posttrain, edit):
    stage = toy.root / toy.package / "stage.py"
    edit(stage, 'return {"sum": float(total)}', 'return "done"')
    refused = posttrain("run", "--local")
    assert refused.code == 2
    assert refused.sentence == (
        "stage 'first' returns 'done', and names with their numbers are needed; correct what its"
        " run returns"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "--only", ""), "--only is empty; name one, or leave it out"),
        (("run", "--from", ""), "--from is empty; name one, or leave it out"),
        (("plan", ""), "RECIPE is empty; name one, or leave it out"),
        (("status", ""), "RECIPE is empty; name one, or leave it out"),
    ],
)
def test_an_empty_name_is_no_name(toy, posttrain, contents, arguments, said):
    before = contents()
    refused = posttrain(*arguments)
    assert (refused.code, refused.sentence) == (2, said)
    assert contents() == before


def test_a_ledger_in_a_folder_that_is_not_there_is_a_typo(toy, posttrain, monkeypatch, tmp_path):
    monkeypatch.setenv("POSTTRAIN_LEDGER", str(tmp_path / "nowhere/x.db"))
    refused = posttrain("plan")
    assert (refused.code, refused.sentence) == (
        2,
        f"POSTTRAIN_LEDGER: there is no folder {tmp_path}/nowhere; make it, or correct the path",
    )
    assert not (tmp_path / "nowhere").exists()


def test_a_database_of_no_known_kind_is_refused(toy, posttrain, monkeypatch):
    monkeypatch.setenv("POSTTRAIN_SCHEDULES", "foo://user:secret@host/x")
    refused = posttrain("schedule", "list")
    assert refused.code == 2
    assert refused.sentence.startswith("POSTTRAIN_SCHEDULES: foo://***@host/x names no database:")


def test_output_that_cannot_be_written_is_one_sentence(toy):
    command = [sys.executable, "-m", "posttrain", "plan"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, cwd=toy.root, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (2, "error: No space left on device\n")


@pytest.mark.parametrize("verb", [["plan"], ["run", "--local"]])
@pytest.mark.parametrize("content", [b"\xff", b"<<<<<<< HEAD\n"])
def test_a_lock_that_nobody_can_read_is_found_before_anything_runs(toy, posttrain, content, verb):
    (toy.root / "dvc.lock").write_bytes(content)
    refused = posttrain(*verb)
    assert refused.code == 2
    assert str(toy.root / "dvc.lock") in refused.sentence
    assert not (toy.root / "data").exists()
    assert not list(toy.root.glob(".posttrain/runs/*"))


@pytest.mark.parametrize("verb", [["plan"], ["run", "--local"]])
def test_a_file_in_the_place_of_the_data_is_found_before_anything_runs(toy, posttrain, verb):
    (toy.root / "data").write_text("x")
    refused = posttrain(*verb)
    assert (refused.code, refused.sentence) == (
        2,
        f"{toy.root}/data is a file, and stage 'first' writes into a folder of that name;"
        " move it away",
    )


def test_generated_files_that_are_no_text_are_written_anew(toy, posttrain):
    (toy.root / "dvc.yaml").write_bytes(b"\xff")
    assert posttrain("compile").code == 0
    assert b"stages:" in (toy.root / "dvc.yaml").read_bytes()


@pytest.mark.slow
def test_a_project_beside_another_is_not_inside_it(toy, posttrain):
    assert posttrain("init", f"../{toy.root.name}-beside").code == 0
    refused = posttrain("init", "below/it")
    assert refused.code == 2
    assert "is inside the project" in refused.sentence


@pytest.mark.parametrize("verb", [["plan"], ["run", "--local"]])
def test_a_project_without_git_is_found_before_anything_runs(toy, posttrain, contents, verb):
    shutil.rmtree(toy.root / ".git")
    before = contents()
    refused = posttrain(*verb)
    assert (refused.code, refused.sentence) == (
        2, f"{toy.root} is not in a git repository; run `git init` there",
    )  # fmt: skip
    # What is called .git need not be a repository.
    (toy.root / ".git").mkdir()
    assert posttrain(*verb).sentence == refused.sentence
    assert contents() == before


def test_a_ready_project_is_looked_at_without_git(toy, posttrain):
    assert posttrain("run", "--local").code == 0
    shutil.rmtree(toy.root / ".git")
    looked = posttrain("plan")
    assert (looked.code, looked.out.splitlines()[-1]) == (0, "0 of 3 stages to run.")


@pytest.mark.parametrize("verb", [["plan"], ["run", "--local"]])
def test_a_home_that_is_no_folder_is_found_before_anything_runs(
    toy, posttrain, contents, monkeypatch, verb
):
    before = contents()
    monkeypatch.setenv("XDG_CONFIG_HOME", "/dev/null")
    refused = posttrain(*verb)
    assert (refused.code, refused.sentence) == (
        2,
        "/dev/null is no folder, and DVC looks for /dev/null/dvc/config; set XDG_CONFIG_HOME, or"
        " HOME, to a folder",
    )
    assert contents() == before


@pytest.mark.slow
def test_closed_standard_files_are_nobody_elses(toy):
    """What is opened first would have their numbers, and be written into."""
    words = shlex.join([sys.executable, "-m", "posttrain", "run", "--local"])
    done = subprocess.run(
        ["sh", "-c", f"{words} <&- >&- 2>&-"], cwd=toy.root, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert (toy.root / "data/third/result.json").is_file()
    ledger = (toy.root / ".posttrain/ledger.db").read_bytes()
    assert ledger.startswith(b"SQLite format 3")


@pytest.mark.slow
def test_what_an_encoding_lacks_is_escaped(toy):
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    shown = toy.cli("method", "show", "dapo", env=plain)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "\\xb7" in shown.stdout


def test_a_ledger_that_is_begun_elsewhere_is_told(toy, posttrain, monkeypatch, tmp_path):
    monkeypatch.setenv("POSTTRAIN_LEDGER", str(tmp_path / "x.db"))
    note = f"note: there is no ledger at {tmp_path}/x.db yet; it is begun\n"
    assert posttrain("plan").err == note
    assert posttrain("plan").err == ""


@pytest.mark.parametrize(
    ("option", "number"), [("--prefect-port", "99999"), ("--mlflow-port", "0")]
)
def test_a_port_that_no_machine_has(toy, posttrain, contents, option, number):
    before = contents()
    refused = posttrain("up", option, number)
    assert refused.code == 2
    assert refused.sentence.startswith(
        f"Invalid value for '{option}': {number} is not in the range"
    )
    assert contents() == before


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("list", "no recipe is committed yet, and schedules are read from the commit:"),
        ("next", "Nothing runs next: no schedule is applied;"),
        ("history", "Nothing was due yet."),
    ],
)
def test_no_schedule_is_an_answer(toy, posttrain, verb, said):
    shown = posttrain("schedule", verb)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(said)


@pytest.mark.slow
def test_the_next_step_of_a_folder_with_a_space_can_be_typed(posttrain, tmp_path_factory):
    folder = tmp_path_factory.mktemp("a space") / "sums"
    assert f"Next: cd '{folder}' && make run" in posttrain("init", str(folder)).out


def test_a_run_is_verified_beside_a_broken_recipe(toy, posttrain):
    assert posttrain("run", "--local").code == 0
    (toy.root / "recipes/other").mkdir(parents=True)
    (toy.root / "recipes/other/recipe.yaml").write_bytes(b"flow: caf\xe9\n")
    refused = posttrain("verify", "latest", "--level", "L3", "--metric", "x")
    assert refused.code == 2
    assert "has no metric 'x'" in refused.sentence


def test_many_processes_on_few_cores_are_told(toy, posttrain):
    toy.recipe("run: {threads: 4000}\n")
    planned = posttrain("plan")
    assert planned.code == 0
    assert "note: run.threads is 4000, and this machine has " in planned.out


@pytest.mark.parametrize("noise", ["[[[\n", "[core]\n    nobody = 1\n"])
def test_a_configuration_that_dvc_cannot_read_is_found_before_anything_runs(
    toy, posttrain, contents, noise
):
    (toy.root / ".dvc/config").write_text(noise)
    before = contents()
    refused = posttrain("run", "--local")
    assert refused.code == 2
    assert refused.sentence.startswith(f"{toy.root}/.dvc/config: ")
    assert contents() == before


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("def declare(build):\n    1 / 0\n", "ZeroDivisionError: division by zero"),
        ("def declare(build):\n    raise SystemExit(3)\n", "SystemExit: 3"),
    ],
)
def test_a_flow_that_cannot_declare_is_named(toy, posttrain, contents, body, said):
    package = toy.flow.partition(".")[0]
    name = f"undeclared{len(body)}"
    toy.write(f"{package}/{name}.py", body)
    toy.write("recipes/other/recipe.yaml", f"flow: {package}.{name}\n")
    before = contents()
    refused = posttrain("plan", "recipes/other")
    assert refused.code == 2
    assert refused.sentence.startswith(
        f"recipes/other/recipe.yaml: declare of the flow '{package}.{name}' fails: {said}"
    )
    assert contents() == before
