"""The GPU: its driver, its memory, and whether the installed torch can use it."""

import shutil
import subprocess
from collections.abc import Iterator

from posttrain.operations.maintenance.checks.finding import CheckScope, Finding
from posttrain.operations.project.versions import installed_version
from posttrain.stage.errors import first_line
from posttrain.stage.formatting import bytesize

_SECONDS = 20.0
_MEBIBYTE = 1 << 20
_LITTLE_FREE = 0.1
_QUERY = "--query-gpu=name,driver_version,memory.free,memory.total"


def gpu(_: CheckScope) -> Iterator[Finding]:
    """Driver and memory of every GPU, and a sum made by torch on the first."""
    if shutil.which("nvidia-smi") is None:
        built = f"torch {installed_version('torch')}"
        yield Finding("gpu", "ok", f"none: no NVIDIA driver here; stages run on the CPU ({built})")
        return
    try:
        said = subprocess.run(
            ["nvidia-smi", _QUERY, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        says = f"nvidia-smi fails: {_said(error)}"
        yield Finding("gpu", "warning", says, "install the driver again, or reboot after an update")
        return
    lines = [line.split(", ") for line in said.splitlines() if line.count(", ") == 3]
    if not lines:
        yield Finding("gpu", "ok", "the NVIDIA driver sees no GPU; stages run on the CPU")
        return
    yield from (_memory(*line) for line in lines)
    yield _torch(lines[0][1])


def _memory(name: str, driver: str, free: str, total: str) -> Finding:
    if not (free.isdigit() and total.isdigit()):
        return Finding("gpu", "ok", f"{name}, driver {driver}")
    room, size = int(free) * _MEBIBYTE, int(total) * _MEBIBYTE
    says = f"{name}, driver {driver}, {bytesize(room)} of {bytesize(size)} free"
    if room < _LITTLE_FREE * size:
        return Finding("gpu", "warning", says, "nvidia-smi lists who uses it; stop that, or wait")
    return Finding("gpu", "ok", says)


def _torch(driver: str) -> Finding:
    """Return whether torch computes there; some builds see a GPU that they have no code for."""
    import torch

    built = f"torch {torch.__version__}"
    other = f"install torch {torch.__version__.partition('+')[0]} built for CUDA: see pytorch.org"
    if torch.version.cuda is None:
        says = f"{built} is built without CUDA; stages run on the CPU"
        return Finding("gpu", "warning", says, f"{other}; or leave it, where the CPU will do")
    try:
        total = float(torch.ones(8, device="cuda").sum())
    except RuntimeError as error:
        says = f"{built} (CUDA {torch.version.cuda}) cannot use it: {_said(error)}"
        return Finding("gpu", "warning", says, f"{other}, for driver {driver}, or renew the driver")
    if total != 8.0:
        says = f"{built} adds eight ones to {total:g} on it"
        return Finding("gpu", "broken", says, "have the card checked: its results are wrong")
    return Finding("gpu", "ok", f"{built} (CUDA {torch.version.cuda}) computes on it")


def _said(error: Exception) -> str:
    """The first line of what it says; of a program, what that said."""
    said = ""
    if isinstance(error, subprocess.CalledProcessError):
        said = (error.stderr or error.stdout or "").strip()
    return said.splitlines()[0] if said else first_line(error)
