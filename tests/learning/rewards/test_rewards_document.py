"""docs/rewards.md: every component is in its table, and every recipe in it is one."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from posttrain.learning.rewards.components.registry import COMPONENTS
from posttrain.pipeline.recipe import load_recipe

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "rewards.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \| .* \| `(\{.*\})` \|$", DOCUMENT, re.MULTILINE)
RECIPES = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)


def test_every_component_is_in_the_table():
    assert [kind for kind, _ in ROWS] == list(dict.fromkeys(kind for kind, _ in ROWS))
    assert {kind for kind, _ in ROWS} == COMPONENTS.parts.keys()


@pytest.mark.parametrize(("kind", "example"), ROWS)
def test_the_example_of_a_component_is_one(kind, example):
    part = COMPONENTS.parse(YAML(typ="safe").load(example))
    assert part.kind == kind


@pytest.mark.parametrize("text", RECIPES)
def test_a_recipe_of_the_document_is_planned(text, tmp_path):
    (tmp_path / "recipe.yaml").write_text(f"flow: flows.post_training\nformat: 3\n{text}")
    load_recipe(tmp_path).resolve(ROOT).check()
