"""The table of docs/scale.md says what its script counts, and the script what the plan does."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.learner.what_fits import (
    DOCUMENT,
    GPUS,
    HEAD,
    MODELS,
    ROOT,
    STEPS,
    TASKS,
    UNDER,
    cell,
    peak,
    settings,
    write_config,
)
from posttrain.cli.main import cli
from posttrain.learning.memory.shapes import read_shapes


def cells_of(text):
    """The table's cells, by model, task and GPU."""
    table = text.partition(HEAD)[2].partition("\n\n")[0].splitlines()[2:]
    rows = [[each.strip() for each in line.strip("|").split("|")] for line in table]
    return {
        (*row[:2], gpu): found for row in rows for gpu, found in zip(GPUS, row[2:], strict=True)
    }


CELLS = cells_of(DOCUMENT.read_text())


def test_the_table_has_every_model_task_and_gpu_in_words_of_its_legend():
    assert {*CELLS} == {(m, t, g) for m in MODELS for t in TASKS for g in GPUS}
    for (_, task, _), found in CELLS.items():
        assert found in {"-", "as it is", *TASKS[task].ladder}
    text = DOCUMENT.read_text()
    for word, given in STEPS.items():
        (line,) = [each for each in text.splitlines() if each.startswith(f"| {word} | `")]
        assert all(f"`{each}`" in line for each in given)
    assert all(f"`{each}`" in text for each in UNDER.values())


# All below count: an architecture is built without memory by transformers, which is imported first.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "task", "gpu"), [("1.5B", "SFT", "24GB"), ("3B", "GRPO", "24GB")]
)
def test_cells_are_as_the_script_counts_them(model, task, gpu, tmp_path):
    assert cell(task, gpu, write_config(tmp_path, model)) == CELLS[model, task, gpu]


@pytest.mark.slow
def test_the_script_counts_what_the_plan_says_and_the_word_before_does_not_fit(tmp_path):
    config, asked = write_config(tmp_path, "1.5B"), TASKS["SFT"]
    before, words = asked.ladder[1:3]
    assert CELLS["1.5B", "SFT", "24GB"] == words
    given = [part for each in settings(asked, words) for part in ("--set", each)]
    recipe = str(ROOT / "recipes" / asked.recipe)
    options = ["--memory", "--gpu", "24GB", "--model-config", str(config), "--json"]
    told = CliRunner().invoke(cli, ["plan", recipe, *options, *given])
    assert told.exit_code == 0
    (stage,) = json.loads(told.stdout)["stages"]
    assert stage["fits"]
    assert stage["peak"] == peak(asked, words, "24GB", config) <= 0.9 * 24e9
    assert peak(asked, before, "24GB", config) > 0.9 * 24e9


@pytest.mark.slow
def test_vllms_share_has_to_hold_the_model(tmp_path):
    """Of 16 GB the recipe gives it 6.4, and 3.09 billion parameters of 2 bytes take 6.2."""
    config = write_config(tmp_path, "3B")
    assert peak(TASKS["GRPO"], "", "16GB", config) == float("inf")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "billions"), [("0.5B", 0.494), ("1.5B", 1.544), ("3B", 3.086), ("7B", 7.616)]
)
def test_the_shapes_are_those_of_the_released_models(model, billions, tmp_path):
    """By the numbers of parameters on the models' pages at the hub."""
    shapes = read_shapes(write_config(tmp_path, model))
    assert round(shapes.parameters / 1e9, 3) == billions
