"""Which kernels of the processor a stage computes with: the fastest, or those that many have.

Libraries choose kernels by the processor that they find, and each kernel sums in an order of its
own: equal code and data then come to other bytes on another machine. `portable` binds all of them
to AVX2, which x86 processors of both vendors have had since 2013 and 2017.
"""

import ctypes
import importlib
import mmap
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

Kernels = Literal["portable", "fast"]

PORTABLE: Mapping[str, str] = {
    # torch's own kernels.
    "ATEN_CPU_CAPABILITY": "avx2",
    # Matrix products of torch: one branch of MKL's code, also where memory is not aligned.
    "MKL_CBWR": "AVX2,STRICT",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    # Matrix products of numpy, and its other kernels.
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
}
"""Variables that bind each library to AVX2; they are read when it is loaded or first used."""

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS")
"""Variables that say how many threads a library may use."""

REPEATABLE: Mapping[str, str] = {
    "TOKENIZERS_PARALLELISM": "false",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "PYTHONHASHSEED": "0",
}
"""Variables without which a stage would not come to equal bytes again."""

# MKL_CBWR_BRANCH and the branches, as <mkl_types.h> numbers them.
_BRANCH = 1
_BRANCHES = {1: "any", 2: "any", 3: "COMPATIBLE", 8: "AVX", 10: "AVX2", 12: "AVX512"}

# endbr64; mov eax, 1; ret
_RETURN_1 = b"\xf3\x0f\x1e\xfa\xb8\x01\x00\x00\x00\xc3"


def kernel_environment(kernels: Kernels) -> dict[str, str]:
    """Variables that a process needs from its start to compute with these kernels."""
    return dict(PORTABLE) if kernels == "portable" else {}


def bind_kernels(kernels: Kernels) -> None:
    """Bind this process to kernels, before it first computes; imports torch.

    MKL takes its code for AVX2 and AVX-512 on processors of Intel's only, whatever others can do;
    what it takes on AMD's is slower, and rounds otherwise. Both have the same instructions, so
    that it is answered that this one is Intel's. (The answer is known as ``fakeintel``: "Intel MKL
    on AMD Zen", danieldk.eu, 2020.) Where the system does not let code be changed, or torch has no
    MKL, nothing happens, and `bound_kernels` says what came of it.

    Args:
        kernels: What the recipe asks for.

    """
    os.environ.update(kernel_environment(kernels))
    library = _torch_library()
    answer = getattr(library, "mkl_serv_intel_cpu_true", None)
    if answer is None or answer():
        return
    address = ctypes.cast(answer, ctypes.c_void_p).value or 0
    page = address // mmap.PAGESIZE * mmap.PAGESIZE
    size = ctypes.c_size_t(address + len(_RETURN_1) - page)
    protect = ctypes.CDLL(None).mprotect
    readable = mmap.PROT_READ | mmap.PROT_EXEC
    if protect(ctypes.c_void_p(page), size, readable | mmap.PROT_WRITE) == 0:
        ctypes.memmove(address, _RETURN_1, len(_RETURN_1))
        protect(ctypes.c_void_p(page), size, readable)


def is_bound() -> bool:
    """Return whether MKL was bound here, or need not be, as this is Intel's; imports torch."""
    answer = getattr(_torch_library(), "mkl_serv_intel_cpu_true", None)
    return answer is None or bool(answer())


def bound_kernels(*, loaded: bool = False) -> dict[str, str]:
    """Ask the libraries of this process what they compute with.

    Args:
        loaded: Ask those alone that are imported here, as others computed nothing; else torch and
            numpy are imported.

    Returns:
        torch's capability, MKL's branch, numpy's and OpenBLAS's kernels as they say themselves;
        oneDNN's cap as it is set, as torch's oneDNN cannot be asked; and under `kernels` what they
        come to: `portable` where all are bound to AVX2, also where none is imported, which leaves
        nothing to the processor; else `own`: those of this processor.

    """
    found: dict[str, str] = {}
    if not loaded or "torch" in sys.modules:
        import torch

        found = {
            "torch": torch.backends.cpu.get_cpu_capability(),
            "mkl": _mkl_branch(),
            "onednn": os.environ.get("ONEDNN_MAX_CPU_ISA", "any"),
        }
    if not loaded or "numpy" in sys.modules:
        found |= {"numpy": _numpy_kernels(), "openblas": _openblas_core()}
    portable = set(found.values()) <= {"AVX2", PORTABLE["OPENBLAS_CORETYPE"]}
    return {"kernels": "portable" if portable else "own", **found}


def _numpy_kernels() -> str:
    # numpy tells it nowhere else.
    module = importlib.import_module("numpy._core._multiarray_umath")
    used = {name for name in module.__cpu_dispatch__ if module.__cpu_features__[name]}
    if any(name == "X86_V4" or name.startswith("AVX512") for name in used):
        return "AVX512"
    return "AVX2" if used & {"X86_V3", "AVX2"} else "other"


def _openblas_core() -> str:
    import numpy as np

    for path in (Path(np.__file__).parents[1] / "numpy.libs").glob("*openblas*"):
        core = getattr(ctypes.CDLL(str(path)), "scipy_openblas_get_corename64_", None)
        if core is not None:
            core.restype = ctypes.c_char_p
            return str(core().decode())
    return "none"


def _mkl_branch() -> str:
    branch = getattr(_torch_library(), "mkl_serv_cbwr_get", None)
    if branch is None:
        return "none"
    number = branch(_BRANCH)
    return _BRANCHES.get(number, str(number))


def _torch_library() -> ctypes.CDLL | None:
    import torch

    # It is loaded already: this only finds it again.
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    return ctypes.CDLL(str(path)) if path.is_file() else None
