"""The key of an import follows the function that converts its rows, and little beside it."""

import pytest

from posttrain.pipeline.recipe import load_recipe
from posttrain.pipeline.stage_keys import StageKeys
from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.ledger import open_ledger

RECIPE = """
flow: flows.own_chats
format: 3
import_chats:
  sources: [{path: rows.jsonl, format: {kind: map, function: "my_rows:convert"}}]
"""
CODE = """
def convert(row):
    return tail(row)
def tail(row):
    return None
def idle():
    pass
"""


@pytest.fixture
def closure(toy):
    """The code that `import_chats` can reach, by what my_rows.py is now."""
    toy.write("rows.jsonl", '{"a": 1}\n')
    toy.recipe(RECIPE)

    def found(text):
        toy.write("my_rows.py", text)
        recipe = load_recipe(toy.root)
        dag = recipe.resolve(toy.root)
        with open_ledger("sqlite:///:memory:") as ledger:
            keys = StageKeys(recipe, dag, Workspace(toy.root, toy.root), ledger)
            return keys.closure("import_chats")

    return found


def test_the_function_and_what_it_calls_are_in_the_key(closure):
    first = closure(CODE)
    assert {"my_rows:convert", "my_rows:tail"} <= {str(symbol) for symbol in first.symbols}
    assert "my_rows:idle" not in {str(symbol) for symbol in first.symbols}
    # Nothing is imported by a name that only a run knows, which would take in all there is.
    assert not first.loads_by_name
    assert closure(CODE.replace("return None", "return 1")).digest != first.digest
    assert closure(CODE + "# the same\n").digest == first.digest
