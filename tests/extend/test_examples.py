"""The examples of plug-ins that the documents show: one of every kind, and short."""

import ast
from pathlib import Path

import pytest

from posttrain.pipeline.slots import SLOTS

FOLDER = Path(__file__).parent / "plugins"


def test_every_slot_has_an_example():
    assert {path.stem for path in FOLDER.glob("my_*.py")} == {f"my_{slot}" for slot in SLOTS}


@pytest.mark.parametrize("slot", SLOTS)
def test_an_example_is_short_and_offers_one_part(slot):
    text = (FOLDER / f"my_{slot}.py").read_text()
    assert len(text.splitlines()) <= 40
    (parts,) = [
        node.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "PARTS"
    ]
    assert [key.value for key in parts.keys] == [slot]


def test_the_document_shows_these_very_examples():
    from tests.extend.write_extending import DOCUMENT, document

    remedy = "run: python tests/extend/write_extending.py"
    assert DOCUMENT.read_text() == document(), remedy
