"""`posttrain init`: a whole project, or one sentence and nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.operations.project.create import create
from posttrain.stage.errors import UserError
from tests.forked import posttrain


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A project as the command writes it."""
    folder = tmp_path_factory.mktemp("init")
    done = posttrain("init", "demo", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "cd demo && make run" in done.stdout
    return folder / "demo"


def test_it_plans_with_installed_tasks_and_its_own(demo):
    done = posttrain("plan", cwd=demo)
    assert done.returncode == 0, done.stderr
    assert "6 of 6 stages to run" in done.stdout


@pytest.mark.slow
def test_dvc_gets_the_files_of_the_project_and_none_of_the_installation(demo):
    assert posttrain("compile", cwd=demo).returncode == 0
    text = (demo / "dvc.yaml").read_text()
    files = {line[6:] for line in text.splitlines() if line.startswith("    - ") and "/" in line}
    assert {"tasks/balance/stage.py", "tasks/__init__.py"} <= files
    assert all((demo / file).is_file() for file in files if file.endswith(".py"))
    assert not any("site-packages" in file or file.startswith("..") for file in files)


@pytest.mark.slow  # the tests of the new project run its pipeline
def test_its_own_tests_and_style_hold(demo):
    tests = subprocess.run(
        [sys.executable, "-m", "pytest"], cwd=demo, capture_output=True, text=True, check=False
    )
    assert tests.returncode == 0, tests.stdout
    for command in (["check", "."], ["format", "--check", "."]):
        style = subprocess.run(
            [sys.executable, "-m", "ruff", *command],
            cwd=demo,
            capture_output=True,
            text=True,
            check=False,
        )
        assert style.returncode == 0, style.stdout


def test_git_takes_what_it_should(demo):
    listed = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard"],
        cwd=demo,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {"recipe.yaml", ".dvc/config", "constraints.txt", "tasks/balance/stage.py"} <= set(
        listed
    )
    assert not any(name.startswith((".posttrain/", "data/")) for name in listed)


def test_constraints_are_what_is_installed(demo):
    lines = (demo / "constraints.txt").read_text().splitlines()[1:]
    pinned = dict(line.split("==") for line in lines)
    import sympy
    import torch

    assert pinned["torch"] == torch.__version__.partition("+")[0]
    # Not asked for by posttrain itself, but by what it asks for.
    assert pinned["sympy"] == sympy.__version__
    assert "dvc-data" in pinned
    assert "posttrain" not in pinned


@pytest.mark.parametrize("name", ["1st", "two words", "-x", "é", "..."])
def test_a_bad_name_is_refused(tmp_path, name):
    with pytest.raises(UserError, match="is no name for a project"):
        create(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    done = posttrain("init", "full", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "is not empty" in done.stderr
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["notes"]


def test_a_file_and_a_project_around_it_are_refused(tmp_path, demo):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file"):
        create(tmp_path / "file")
    with pytest.raises(UserError, match="is inside the project"):
        create(demo / "inner")


@pytest.mark.slow
def test_an_empty_folder_is_used_and_a_repository_around_it_is_kept(tmp_path):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "sub").mkdir()
    create(tmp_path / "sub")
    assert (tmp_path / "sub" / "recipe.yaml").is_file()
    assert not (tmp_path / "sub" / ".git").exists()


def test_nothing_is_left_where_the_disk_refuses(tmp_path, monkeypatch):
    written = []
    write = Path.write_text

    def refuse(path, text, **options):
        if len(written) == 5:
            raise OSError(28, "No space left on device")
        written.append(path)
        return write(path, text, **options)

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(UserError, match="No space left"):
        create(tmp_path / "demo")
    assert list(tmp_path.iterdir()) == []
