"""What decides the bytes of a result beside its key: the processor and what it was let use.

A key is the same on every machine, and so are the bytes of most stages; but kernels of matrix
products are chosen by the processor that they run on, and sum in another order on another one.
"""

import ctypes
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

PINS = (
    "ATEN_CPU_CAPABILITY",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "NPY_DISABLE_CPU_FEATURES",
)
"""Variables by which a person chooses kernels; set ones count by value in every key."""

NAMES = {
    "kernels": "the choice of kernels",
    "torch": "torch's kernels",
    "mkl": "MKL's kernels",
    "onednn": "the cap of oneDNN's kernels",
    "libc": "the C library",
    "gpu": "the GPU",
    "processor": "the processor",
}
"""Circumstances that may decide bytes, in the order in which they are compared."""

# MKL_CBWR_BRANCH and its values, as <mkl_types.h> numbers them.
_BRANCH = 1
_BRANCHES = {1: "any", 2: "any", 3: "COMPATIBLE", 8: "AVX", 10: "AVX2", 12: "AVX512"}


def observed(device: str = "cpu") -> dict[str, str]:
    """What this process computes with, as its libraries say of themselves; imports torch.

    Args:
        device: cpu or cuda.

    Returns:
        Value by name of a circumstance.

    """
    import torch

    found = {
        "processor": processor(),
        "torch": torch.backends.cpu.get_cpu_capability(),
        "mkl": _mkl(),
        "onednn": os.environ.get("ONEDNN_MAX_CPU_ISA", "none"),
        "libc": " ".join(platform.libc_ver()),
    }
    if device == "cuda":
        found["gpu"] = torch.cuda.get_device_name()
    return found


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Say how two results were made under circumstances that may make other bytes.

    Args:
        before: Circumstances of the one; empty where they were not recorded.
        after: Of the other.

    Returns:
        A phrase for each that differs, the first the likeliest; none where one of them is unknown.

    """
    if not before or not after:
        return []
    portable = before.get("kernels") == after.get("kernels") == "portable"
    return [
        f"{said} {before.get(name, 'none')}, here {after.get(name, 'none')}"
        for name, said in NAMES.items()
        # Portable kernels are those that do not ask which processor it is.
        if before.get(name) != after.get(name) and not (portable and name == "processor")
    ]


def processor() -> str:
    """What the processor calls itself: another one may round otherwise."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    names = re.findall(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return names[0] if names else platform.processor()


def _mkl() -> str:
    """The branch of its code that MKL was bound to; `none` where torch brings no MKL."""
    import torch

    # It is loaded already: this only finds it again.
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        branch = ctypes.CDLL(str(path)).mkl_serv_cbwr_get(_BRANCH)
    except (OSError, AttributeError):
        return "none"
    return _BRANCHES.get(branch, str(branch))
