"""What the page for people of other tools says of this one, and of TRL, is so."""

import inspect
import re
from pathlib import Path

import polars as pl
import pytest
from pydantic import BaseModel

from posttrain.pipeline.recipe import RunSettings, load_recipe
from posttrain.pipeline.recipe_schema import stages_of_flow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "coming-from.md").read_text()
_PLACE = re.compile(r"`((?:rl|sft|preference|synthesize|import_model|import_pairs|run)\.[a-z_.]+)`")


def places():
    """Dotted places of a recipe that the page names, those of data left out."""
    return sorted(set(_PLACE.findall(PAGE)))


@pytest.fixture(scope="module")
def sections():
    tasks = stages_of_flow("flows.post_training", ROOT)
    return {name: task.config for name, task in tasks.items()} | {"run": RunSettings}


@pytest.mark.parametrize("place", places())
def test_a_place_of_a_recipe_is_there(place, sections):
    section, *path = place.split(".")
    value = sections[section].model_construct()
    for name in path:
        assert isinstance(value, BaseModel), place
        assert name in type(value).model_fields, place
        value = getattr(value, name)


def test_the_recipes_are_of_today(tmp_path, capsys):
    recipes = re.findall(r"```yaml\n(flow:.*?)```", PAGE, re.DOTALL)
    assert len(recipes) == 3
    tutorial = (ROOT / "docs" / "tutorials" / "own-reward.md").read_text()
    (plugin,) = re.findall(r'title="brevity.py"\n(.*?)```', tutorial, re.DOTALL)
    (tmp_path / "brevity.py").write_text(plugin)
    (tmp_path / "gsm8k").mkdir()
    for split in ("train", "test"):
        row = pl.DataFrame({"question": [f"1 + 1, {split}?"], "answer": ["#### 2"]})
        row.write_parquet(tmp_path / "gsm8k" / f"{split}.parquet")
    for name in ("problems.jsonl", "pairs.jsonl"):
        (tmp_path / name).touch()
    (tmp_path / "models" / "qwen").mkdir(parents=True)
    for number, text in enumerate(recipes):
        folder = tmp_path / "recipes" / str(number)
        folder.mkdir(parents=True)
        (folder / "recipe.yaml").write_text(text)
        assert {"rl", "preference"} & load_recipe(folder).resolve(tmp_path).stages.keys()
    assert capsys.readouterr().err == ""


@pytest.mark.slow  # TRL's import
def test_what_is_named_of_trl_is_in_the_version_that_is_named():
    import trl

    assert f"TRL {trl.__version__}" in PAGE
    table = PAGE.partition("| TRL | here |")[2].partition("\n## ")[0]
    named = set(re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE))
    words = {word for cell in named for word in re.findall(r"`(\w+)`", cell)}
    known = {
        name
        for each in (trl.SFTTrainer, trl.RewardTrainer, trl.DPOTrainer, trl.GRPOTrainer)
        for name in (each.__name__, *inspect.signature(each.__init__).parameters)
    } | {
        name
        for each in (trl.SFTConfig, trl.DPOConfig, trl.GRPOConfig)
        for name in inspect.signature(each.__init__).parameters
    }
    columns = {"messages", "prompt", "completion", "chosen", "rejected", "label"}
    assert sorted(words - known - columns) == []
    assert len(words) > 20
