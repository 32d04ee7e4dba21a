"""The examples of plug-ins that the documents show: one of every kind, and short."""

import ast
import runpy
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


def test_a_problem_sampler_is_tried_on_a_simulated_student(monkeypatch, capsys):
    monkeypatch.syspath_prepend(FOLDER)
    runpy.run_path(str(FOLDER.parent / "taught.py"))
    # 12 problems of 80 steps are each of the 240 four times, of which 60 can be learned. Of skill 0
    # levels 0, 1 and 2 are solved by chances of 1 / (1 + exp(2 level)): 0.5, 0.119 and 0.018.
    said = capsys.readouterr().out.splitlines()[1]
    assert said.startswith("least_drawn: 25% can be learned, solves 0.21, ")
    assert 0.21 < float(said.rpartition(" ")[2]) < 1.0


def test_the_document_shows_these_very_examples():
    from tests.extend.write_extending import DOCUMENT, document

    remedy = "run: python tests/extend/write_extending.py"
    assert DOCUMENT.read_text() == document(), remedy
