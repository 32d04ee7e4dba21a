"""What a process does with memory that it has freed."""

import os
import subprocess
import sys

import pytest

from tests.quick import first_now

SCRIPT = """
import ctypes, resource
from posttrain.pipeline.determinism import keep_freed_memory
{block}
def taken():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [block() for _ in range(24)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def faults():
    for _ in range(16):
        taken()
    return taken() + taken() + taken()
print(faults())
keep_freed_memory()
print(faults())
"""
# As torch takes the memory of a tensor of four MiB, and torch itself, whose import takes seconds.
BLOCKS = {
    "posix_memalign": """
library = ctypes.CDLL(None)
library.free.argtypes = library.memset.argtypes = None
class block:
    def __init__(self):
        self.place = ctypes.c_void_p()
        assert not library.posix_memalign(ctypes.byref(self.place), 64, ctypes.c_size_t(2 ** 22))
        library.memset(self.place, 1, ctypes.c_size_t(2 ** 22))
    def __del__(self):
        library.free(self.place)
""",
    "torch": "import torch\nblock = lambda: torch.ones(2 ** 20)",
}


@pytest.mark.slow
@pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="another C library")
@pytest.mark.parametrize("way", first_now(BLOCKS))
def test_freed_blocks_are_taken_again_without_a_page_fault(way):
    """Page faults of 24 blocks of 4 MiB, taken three times once their places have settled.

    Blocks at aligned addresses leave remainders between them, so that the heap finds its shape
    only after some takings: at most 4 of them by what was tried, depending on what lay there.
    """
    command = [sys.executable, "-c", SCRIPT.format(block=BLOCKS[way])]
    # Left alone, glibc moves its threshold as it goes: where to depends on what was freed before.
    fixed = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=fixed)
    before, after = map(int, done.stdout.split())
    pages = 24 * 2**22 // os.sysconf("SC_PAGE_SIZE")
    assert before > pages / 2
    assert after < pages / 20
