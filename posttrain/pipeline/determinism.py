"""Set one process up before a stage runs: threads, seeds and kernels, and how it holds memory."""

import ctypes
import os
import random
from collections.abc import Mapping

from posttrain.stage.kernels import REPEATABLE, THREADS, Kernels, bind_kernels, kernel_environment
from posttrain.stage.seeds import derived_seed

# Parameters of glibc's mallopt, as <malloc.h> numbers them.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_LARGEST = 32 * 2**20
"""Bytes of a block that may be kept when it is freed; glibc allows no more."""

_KEPT = 512 * 2**20
"""Free bytes at the end of the heap that are not given back."""


def stage_seed(runtime: Mapping[str, str], stage: str) -> int:
    """The seed of a stage, from the `runtime` components of its key.

    Args:
        runtime: How the stage is or was run; `stage_seed` stands there where `seed_as` was given.
        stage: Its name, which the seed derives from otherwise.

    Returns:
        What every random choice of the stage derives from.

    """
    given = runtime.get("stage_seed")
    return int(given) if given is not None else derived_seed(int(runtime["seed"]), stage)


def library_environment(threads: int, kernels: Kernels) -> dict[str, str]:
    """Variables that native libraries read once, when they are loaded."""
    quiet = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    counted = {**dict.fromkeys(THREADS, str(threads)), **kernel_environment(kernels)}
    return {**counted, **REPEATABLE, **quiet}


def make_deterministic(seed: int, threads: int, kernels: Kernels) -> None:
    """Seed every generator of this process and pin torch to repeatable kernels.

    Args:
        seed: Of the stage.
        threads: That one operation may use.
        kernels: Those that the recipe asks for.

    """
    # Read by numpy and torch when they are imported.
    os.environ.update(library_environment(threads, kernels))
    import numpy as np
    import torch

    bind_kernels(kernels)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(mode=True)
    # Filling fresh memory with NaN is a debugging aid, and costs a fifth of a training step.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, up to some hundred megabytes.

    By default glibc gives large blocks back as soon as they are freed, and each page of a new one
    costs a fault: 2 microseconds on a virtual machine, up to a tenth of a step at a million
    parameters. Where the C library is another one, nothing is changed.
    """
    if "CS_GNU_LIBC_VERSION" not in os.confstr_names:
        return
    library = ctypes.CDLL(None)
    library.mallopt(_M_MMAP_THRESHOLD, _LARGEST)
    library.mallopt(_M_TRIM_THRESHOLD, _KEPT)
