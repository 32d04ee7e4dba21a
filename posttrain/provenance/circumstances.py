"""What decides the bytes of a result beside its key: the processor and what it was let use.

A key is the same on every machine, and so are the bytes of most stages; but kernels of matrix
products are chosen by the processor that they run on, and sum in another order on another one.
"""

import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from posttrain.stage.kernels import bound_kernels

NAMES = {
    "torch": "torch's kernels",
    "mkl": "MKL's kernels",
    "onednn": "the cap of oneDNN's kernels",
    "numpy": "numpy's kernels",
    "openblas": "OpenBLAS's kernels",
    "libc": "the C library",
    "gpu": "the GPU",
    "sandbox": "the programs of the sandbox",
    "browser": "the browser",
    "processor": "the processor",
}
"""Circumstances that may decide bytes, in the order in which they are compared."""

_BOUND = {"torch": "AVX2", "mkl": "AVX2", "onednn": "AVX2"}
"""What a learner computes with where it does not ask which processor it is."""


_LIBRARIES = frozenset({"torch", "mkl", "onednn", "numpy", "openblas"})
"""What is stated of a library where it was loaded: otherwise it decided nothing."""


def circumstances_here(device: str = "cpu", *, loaded: bool = False) -> dict[str, str]:
    """What this process computes with, as its libraries say of themselves.

    Args:
        device: cpu or cuda.
        loaded: Ask those alone that are imported here, at the end of what was computed; else torch
            and numpy are imported.

    Returns:
        Value by name of a circumstance.

    """
    found = bound_kernels(loaded=loaded) | {
        "processor": processor(),
        "libc": " ".join(platform.libc_ver()),
    }
    if device == "cuda":
        import torch

        found["gpu"] = torch.cuda.get_device_name()
    return found


def differences(
    before: Mapping[str, str], after: Mapping[str, str], *, after_is: str = "here"
) -> list[str]:
    """Say how two results were made under circumstances that may make other bytes.

    Args:
        before: Circumstances of the one; empty where they were not recorded.
        after: Of the other.
        after_is: What the other is called in the phrases.

    Returns:
        A phrase for each that differs, the first the likeliest; none where one of them is unknown.

    """
    if not before or not after:
        return []
    portable = all(_BOUND.items() <= each.items() or _is_portable(each) for each in (before, after))
    return [
        f"{said} {before.get(name, 'none')}, {after_is} {after.get(name, 'none')}"
        for name, said in NAMES.items()
        if before.get(name) != after.get(name)
        and not (portable and name == "processor")
        and not (name in _LIBRARIES and _did_without(name, before, after))
    ]


def _did_without(library: str, *given: Mapping[str, str]) -> bool:
    """Whether one of them asked what it computed with, and this was not loaded there."""
    return any("kernels" in each and library not in each for each in given)


def _is_portable(given: Mapping[str, str]) -> bool:
    return given.get("kernels") == "portable"


def together(verdicts: Iterable[bool | None]) -> bool | None:
    """What several verdicts come to: one that fails decides, then one of which nothing is known."""
    given = set(verdicts)
    return False if False in given else None if None in given else True


def processor() -> str:
    """What the processor calls itself: another one may round otherwise."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    names = re.findall(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return names[0] if names else platform.processor()
