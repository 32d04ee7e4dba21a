"""Surroundings that are wrong: one sentence, exit code 2, nothing written, and others unharmed."""

import subprocess
import sys
from pathlib import Path

import pytest

BROKEN = {
    "def (": "SyntaxError: invalid syntax",
    "import nowhere_to_be_found": "ModuleNotFoundError: No module named 'nowhere_to_be_found'",
    "raise ValueError('of the flow')": "ValueError: of the flow",
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


@pytest.mark.parametrize("content", [b"\xff", b"<<<<<<< HEAD\n"])
def test_a_lock_that_nobody_can_read_is_found_before_anything_runs(toy, posttrain, content):
    (toy.root / "dvc.lock").write_bytes(content)
    refused = posttrain("run", "--local")
    assert refused.code == 2
    assert str(toy.root / "dvc.lock") in refused.sentence
    assert not (toy.root / "data").exists()
    assert not list(toy.root.glob(".posttrain/runs/*"))


def test_a_file_in_the_place_of_the_data_is_found_before_anything_runs(toy, posttrain):
    (toy.root / "data").write_text("x")
    refused = posttrain("run", "--local")
    assert (refused.code, refused.sentence) == (
        2,
        f"{toy.root}/data is a file, and stage 'first' writes into a folder of that name;"
        " move it away",
    )


def test_generated_files_that_are_no_text_are_written_anew(toy, posttrain):
    (toy.root / "dvc.yaml").write_bytes(b"\xff")
    assert posttrain("compile").code == 0
    assert b"stages:" in (toy.root / "dvc.yaml").read_bytes()


def test_a_project_beside_another_is_not_inside_it(toy, posttrain):
    assert posttrain("init", f"../{toy.root.name}-beside").code == 0
    refused = posttrain("init", "below/it")
    assert refused.code == 2
    assert "is inside the project" in refused.sentence
