"""The variables that a stage sees: those that are declared, and those known to change no byte."""

import os
import re
from collections.abc import Collection, Iterable, Mapping
from fnmatch import translate

PASSED: Mapping[str, str] = {
    "PATH": "where programs are found",
    "LD_LIBRARY_PATH": "where libraries are found",
    "LD_PRELOAD": "an allocator or a profiler of the machine",
    "PYTHONPATH": "where modules are found, which the key follows by their content",
    "PYTHONHOME": "where modules are found, which the key follows by their content",
    "PYTHONNOUSERSITE": "where modules are found, which the key follows by their content",
    "PYTHONUSERBASE": "where modules are found, which the key follows by their content",
    "PYTHONSAFEPATH": "where modules are found, which the key follows by their content",
    "PYTHONPYCACHEPREFIX": "where compiled modules lie",
    "PYTHONDONTWRITEBYTECODE": "whether compiled modules are kept",
    "PYTHONUNBUFFERED": "when text is shown",
    "PYTHONIOENCODING": "how text is shown",
    "PYTHONWARNINGS": "what is shown",
    "PYTHONFAULTHANDLER": "what is shown",
    "PYTHONTRACEMALLOC": "what is shown",
    "PYTHONMALLOC": "how memory is kept",
    "VIRTUAL_ENV": "where modules are found",
    "CONDA_*": "where modules are found",
    "HOME": "where caches lie; nothing else below it can be read",
    "USER": "a name for temporary files",
    "LOGNAME": "a name for temporary files",
    "SHELL": "for programs that ask for one",
    "PWD": "the working folder",
    "TMPDIR": "a stage has a folder of its own for temporary files",
    "TERM": "how text is shown",
    "COLUMNS": "how text is shown",
    "LINES": "how text is shown",
    "NO_COLOR": "how text is shown",
    "CXX": "a compiler of kernels, told by the records of the run",
    "CC": "a compiler of kernels, told by the records of the run",
    "CUDA_VISIBLE_DEVICES": "which device; its class is in the key",
    "CUDA_DEVICE_ORDER": "which device",
    "CUDA_HOME": "where libraries are found",
    "CUDA_PATH": "where libraries are found",
    "CUDA_CACHE_PATH": "the place of a cache",
    "NVIDIA_VISIBLE_DEVICES": "which devices a container shows",
    "NVIDIA_DRIVER_CAPABILITIES": "which devices a container shows",
    "PYTORCH_CUDA_ALLOC_CONF": "how memory is kept",
    "PYTORCH_ALLOC_CONF": "how memory is kept",
    "NCCL_DEBUG*": "what is shown",
    "NCCL_SOCKET_*": "how processes reach each other",
    "NCCL_IB_*": "how processes reach each other",
    "KMP_DUPLICATE_LIB_OK": "set by libraries when they are imported",
    "KMP_INIT_AT_FORK": "set by libraries when they are imported",
    "KMP_WARNINGS": "what is shown",
    "GLOO_SOCKET_IFNAME": "how processes reach each other",
    "TORCHINDUCTOR_CACHE_DIR": "the place of a cache",
    "TRITON_CACHE_DIR": "the place of a cache",
    "NUMBA_CACHE_DIR": "the place of a cache",
    "MPLCONFIGDIR": "the place of a cache",
    "XDG_CACHE_HOME": "the place of caches",
    "VLLM_LOGGING_*": "what is shown",
    "RAY_*": "how Ray works; no result depends on where it is computed",
    "POSTTRAIN_ISOLATION": "how a stage is kept to its key, as the records say",
    "POSTTRAIN_REQUESTS": "the place of a cache",
    "POSTTRAIN_TOKENS": "the place of a cache",
    "POSTTRAIN_GPU_LOCKS": "the place of locks",
    "POSTTRAIN_TRACKING": "where metrics are shown",
}
"""Names or patterns, and why a variable may be seen that no key knows."""

DECISIVE: Mapping[str, str] = {
    "ATEN_CPU_CAPABILITY": "kernels of torch",
    "MKL_*": "kernels and threads of MKL",
    "ONEDNN_*": "kernels of oneDNN",
    "DNNL_*": "kernels of oneDNN",
    "OPENBLAS_*": "kernels and threads of OpenBLAS",
    "OMP_*": "threads",
    "KMP_*": "threads",
    "GOMP_*": "threads",
    "GLIBC_TUNABLES": "kernels of the C library",
    "NPY_*": "kernels of numpy",
    "CUBLAS_WORKSPACE_CONFIG": "kernels of cuBLAS",
    "POLARS_*": "threads of polars",
    "TOKENIZERS_PARALLELISM": "threads of tokenizers",
    "NVIDIA_TF32_OVERRIDE": "precision of cuBLAS and cuDNN",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "precision of torch on GPUs",
    "NCCL_*": "the order of sums over processes",
    "PYTHONHASHSEED": "the order of sets",
    "PYTHONOPTIMIZE": "whether assertions run",
    "PYTHONUTF8": "the encoding of files",
    "PYTHONCOERCECLOCALE": "the encoding of files",
    "PYTHONINTMAXSTRDIGITS": "which numbers can be read",
}
"""Seen by every stage as well: set from the recipe (`posttrain.pipeline.determinism`), or counted
in its key by value. What `PASSED` names is not among them."""

FIXED: Mapping[str, str] = {"TZ": "UTC", "LC_ALL": "C.UTF-8"}
"""What every stage sees of a variable that it does not declare: times, order and encoding of text
are the same wherever it runs."""

NETWORKED: Mapping[str, str] = {
    "HF_*": "how the hub is reached, and where its cache lies",
    "HUGGINGFACE_*": "how the hub is reached, and where its cache lies",
    "TRANSFORMERS_*": "how the hub is reached, and where its cache lies",
    "TORCH_HOME": "the place of a cache",
    "VLLM_*": "how vLLM works",
    "*_PROXY": "the way out",
    "*_proxy": "the way out",
    "SSL_CERT_*": "whom to trust",
    "REQUESTS_CA_BUNDLE": "whom to trust",
    "CURL_CA_BUNDLE": "whom to trust",
}
"""Seen by stages that declare a hub or an endpoint."""

_PASSED = re.compile("|".join(map(translate, PASSED)))
_DECISIVE = re.compile("|".join(map(translate, DECISIVE)))
_SEEN_NETWORKED = re.compile("|".join(map(translate, NETWORKED)))


def passed(
    present: Mapping[str, str], declared: Collection[str] = (), *, networked: bool = False
) -> dict[str, str]:
    """Choose the variables that a stage sees.

    Args:
        present: All variables that are set.
        declared: Names that the recipe declares.
        networked: Its parameters name a hub or an endpoint.

    Returns:
        Values by name.

    """
    return {
        name: value
        for name, value in present.items()
        if name in declared
        or _PASSED.match(name)
        or _DECISIVE.match(name)
        or (networked and _SEEN_NETWORKED.match(name))
    }


def decisive(present: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """Choose the variables that count in every key by value.

    Args:
        present: All variables that are set.
        known: Names that count otherwise: the framework sets them, or the recipe declares them.

    Returns:
        Values by name.

    """
    return {
        name: present[name]
        for name in sorted(present)
        if name not in known and _DECISIVE.match(name) and not _PASSED.match(name)
    }


def withhold(names: Iterable[str]) -> None:
    """Take variables from this process, native code included."""
    for name in names:
        os.environ.pop(name, None)
