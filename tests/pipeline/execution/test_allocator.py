"""What a process does with memory that it has freed."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import resource, torch
from posttrain.pipeline.determinism import keep_freed_memory
{first}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(2 ** 20) for _ in range(24)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults(), faults()
print(faults() + faults() + faults())
"""


def faults(first):
    """Page faults of 24 blocks of 4 MiB, taken for the third, fourth and fifth time."""
    command = [sys.executable, "-c", SCRIPT.format(first=first)]
    # Left alone, glibc moves its threshold as it goes: where to depends on what was freed before.
    fixed = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=fixed)
    return int(done.stdout)


@pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="another C library")
def test_freed_blocks_are_taken_again_without_a_page_fault():
    pages = 24 * 2**22 // os.sysconf("SC_PAGE_SIZE")
    assert faults("") > pages / 2
    assert faults("keep_freed_memory()") < pages / 20
