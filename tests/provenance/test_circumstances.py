"""What decides bytes beside the key: what is recorded, and when two results may differ by it."""

import subprocess
import sys

import pytest

from posttrain.provenance.circumstances import differences

AVX2 = {"processor": "AMD EPYC 7B12", "torch": "AVX2", "mkl": "any"}
AVX512 = {"processor": "AMD EPYC 9B45", "torch": "AVX512", "mkl": "any"}


# Torch looks at the variable when it is first asked: it is imported once, for three processes.
OBSERVE = """
import os
import torch
from posttrain.provenance.circumstances import circumstances_here as here
for value in (None, "nonsense", "default"):
    if os.fork() == 0:
        if value:
            os.environ["ATEN_CPU_CAPABILITY"] = value
        print(here()["torch"], flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.mark.slow
def test_torch_is_asked_and_not_the_variable():
    done = subprocess.run(
        [sys.executable, "-c", OBSERVE], env={}, capture_output=True, text=True, check=True
    )
    own, nonsense, default = done.stdout.split()
    assert default == "DEFAULT"
    # A variable that torch does not understand changes nothing of what it computes with.
    assert nonsense == own


def test_each_difference_is_named_and_what_is_unknown_is_none():
    assert differences(AVX2, AVX512) == [
        "torch's kernels AVX2, here AVX512",
        "the processor AMD EPYC 7B12, here AMD EPYC 9B45",
    ]
    assert differences(AVX2, AVX2) == []
    assert differences({}, AVX2) == differences(AVX2, {}) == []


def test_portable_kernels_do_not_ask_for_the_processor():
    pinned = [{**each, "torch": "AVX2", "mkl": "AVX2", "onednn": "AVX2"} for each in (AVX2, AVX512)]
    assert differences(*pinned) == []
    assert differences(pinned[0], AVX2) == [
        "MKL's kernels AVX2, here any",
        "the cap of oneDNN's kernels AVX2, here none",
    ]


def test_a_library_that_was_not_loaded_decided_nothing():
    without = {"kernels": "portable", "processor": "AMD EPYC 7B12"}
    bound = {"kernels": "portable", "torch": "AVX2", "mkl": "AVX2", "onednn": "AVX2"}
    elsewhere = {**bound, "processor": "AMD EPYC 9B45"}
    assert differences(without, {**bound, "processor": "AMD EPYC 7B12"}) == []
    assert differences(without, elsewhere) == []
    own = {**elsewhere, "kernels": "own", "torch": "AVX512"}
    assert differences(without, own) == ["the processor AMD EPYC 7B12, here AMD EPYC 9B45"]


def test_what_is_not_loaded_is_not_asked():
    code = "import sys\nfrom posttrain.provenance.circumstances import circumstances_here as here\n"
    code += "print(here(loaded=True)['kernels'], sorted({'torch', 'numpy'} & {*sys.modules}))\n"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "portable []"
