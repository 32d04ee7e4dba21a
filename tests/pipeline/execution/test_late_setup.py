"""A stage that may do without torch: set up without it, and to the same bits where it comes."""

import importlib
import importlib.util
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from posttrain.pipeline.execution.late_setup import _Once
from posttrain.provenance.ledger import open_ledger

LATE = """
import json, random, sys
from types import SimpleNamespace
from posttrain.pipeline.execution.late_setup import set_up_as_needed
set_up_as_needed(SimpleNamespace(seed=7, threads=1, kernels="portable", processes=1))
assert not {"torch", "numpy"} & sys.modules.keys()
drawn = [random.random()]
# It looks for numpy and torch without importing them.
import polars
assert not {"torch", "numpy"} & sys.modules.keys()
import numpy
drawn.append(numpy.random.random())
assert "torch" not in sys.modules
import torch
from posttrain.stage.kernels import bound_kernels
drawn += [random.random(), numpy.random.random(), torch.rand(1).item()]
print(json.dumps([
    drawn, torch.are_deterministic_algorithms_enabled(), torch.get_num_threads(),
    torch.__spec__.loader is torch.__loader__, type(torch.__loader__).__name__,
    bound_kernels()["kernels"],
]))
"""


@pytest.mark.slow  # it imports polars, numpy and torch
def test_what_is_imported_late_is_seeded_once_and_set_up_as_at_the_beginning():
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, check=True, text=True)
    drawn, deterministic, threads, whole, loader, kernels = json.loads(done.stdout)
    of_python, of_numpy = random.Random(7), np.random.RandomState(7)
    first, second = of_python.random(), of_numpy.random()
    third = torch.rand(1, generator=torch.Generator().manual_seed(7)).item()
    assert drawn == [first, second, of_python.random(), of_numpy.random(), third]
    assert (deterministic, threads, whole, loader) == (True, 1, True, "SourceFileLoader")
    # The process was not started with the variables of the kernels, so numpy has its own.
    assert kernels in ("portable", "own")


def test_what_comes_after_an_import_is_done_once_and_nothing_of_it_stays(tmp_path, monkeypatch):
    (tmp_path / "late_module.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    heard = []
    once = _Once("late_module", lambda: heard.append(sys.modules["late_module"].VALUE))
    sys.meta_path.insert(0, once)
    module = importlib.import_module("late_module")
    assert heard == [1]
    assert once not in sys.meta_path
    assert module.__loader__ is module.__spec__.loader is not once
    importlib.reload(module)
    assert heard == [1]


def test_what_is_not_there_is_missed_as_ever(monkeypatch):
    once = _Once("no_such_module_anywhere", lambda: None)
    monkeypatch.setattr(sys, "meta_path", [once, *sys.meta_path])
    with pytest.raises(ModuleNotFoundError) as error:
        importlib.import_module("no_such_module_anywhere")
    assert error.value.name == "no_such_module_anywhere"
    assert importlib.util.find_spec("no_such_module_anywhere") is None


@pytest.mark.slow
def test_a_small_stage_loads_no_torch(toy):
    command = [sys.executable, "-m", "posttrain", "run", "--local"]
    environment = {**os.environ, "POSTTRAIN_TRACKING": "off"}
    subprocess.run(command, cwd=toy.root, env=environment, check=True, capture_output=True)
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        made = ledger.history.latest("first")
    assert made.status == "succeeded"
    assert made.circumstances["kernels"] == "portable"
    assert not {"torch", "numpy"} & made.circumstances.keys()
