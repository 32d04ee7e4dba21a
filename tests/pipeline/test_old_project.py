"""A project that `init` of 0.1 wrote, beside the posttrain of today."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

OLD = Path(__file__).parent / "project_0_1"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path):
    for file in OLD.rglob("*.txt"):
        place = tmp_path / file.relative_to(OLD).with_suffix("")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    return tmp_path


def resolve(project):
    # In a process of its own, as the packages `flows` and `tasks` are the project's there.
    code = (
        f"import sys; sys.path[:0] = [{str(project)!r}]; sys.path.append({str(ROOT)!r})\n"
        "from pathlib import Path\n"
        "from posttrain.pipeline.recipe import load_recipe\n"
        "from posttrain.stage.errors import UserError\n"
        "import importlib\n"
        "try:\n"
        "    dag = load_recipe(Path()).resolve(Path.cwd())\n"
        "    importlib.import_module('tasks.balance.stage')\n"
        "    print(*dag.stages)\n"
        "except UserError as error: print('refused', error)\n"
    )
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_import_of_then_is_named_with_that_of_today(project):
    said = resolve(project)
    assert said.startswith("refused recipe.yaml: this project was made with posttrain 0.1")
    for clause in (
        "flows/__init__.py:3: posttrain.pipeline.installed is now posttrain.stage.installed",
        "posttrain.pipeline.spec.ArtifactType is now posttrain.stage.spec.ArtifactKind",
        "posttrain.pipeline.spec is now posttrain.stage.spec",
        "posttrain.curation.sieve.sift is now posttrain.data.filters.apply.split_by_reason",
        "posttrain.records is now posttrain.data.schemas",
    ):
        assert clause in said
    assert "posttrain.data.tables is" not in said


@pytest.mark.slow
def test_with_the_names_of_the_document_it_resolves(project):
    for file in project.rglob("*.py"):
        text = file.read_text()
        for old, new in (
            ("posttrain.pipeline.recipe", "posttrain.PIPELINE.recipe"),
            ("posttrain.pipeline.", "posttrain.stage."),
            ("posttrain.PIPELINE.", "posttrain.pipeline."),
            ("ArtifactType", "ArtifactKind"),
            ("posttrain.records", "posttrain.data.schemas"),
            (
                "from posttrain.curation.sieve import judge, sift",
                "from posttrain.data.filters.apply import split_by_reason as sift\n"
                "from posttrain.data.filters.base import reasons_from as judge",
            ),
        ):
            text = text.replace(old, new)
        file.write_text(text)
    assert resolve(project).split() == [
        "synthesize",
        "curate",
        "balance",
        "pretrain",
        "sft",
        "evaluate",
    ]
