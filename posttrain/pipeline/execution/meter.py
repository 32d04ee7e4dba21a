"""Count what a stage takes while it runs: processor time, GPUs held, energy where a counter is.

Energy is read twice, before and after. The packages of the processor (RAPL, which often root alone
may read) count for the whole machine, so a stage is given the share that its processor time has of
all that the machine spent meanwhile. GPUs count for themselves (NVML, by the package `pynvml`).
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from posttrain.pipeline.cost_settings import CostSettings
from posttrain.provenance.ledger.usage import Usage

POWERCAP = Path("/sys/class/powercap")
_MICRO, _MILLI = 1e-6, 1e-3
_LOOK_SECONDS = 2.0


@dataclass
class StageMeter:
    """Measures one execution from when it is made.

    Args:
        gpus: Devices that it holds, as CUDA_VISIBLE_DEVICES names them.
        powercap: Where Linux shows the counters of the processor's packages.

    """

    gpus: Sequence[str] = ()
    powercap: Path = POWERCAP
    _begun: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self._packages = _packages(self.powercap)
        self._busy = _busy_seconds()
        self._of_gpus = _gpu_joules(self.gpus)

    def read(self, cpu_seconds: float | None) -> Usage:
        """Say what was taken since.

        Args:
            cpu_seconds: Of its processes; None where they ended without saying.

        """
        seconds = time.perf_counter() - self._begun
        return Usage(
            seconds=seconds,
            cpu_seconds=cpu_seconds,
            gpu_seconds=seconds * len(self.gpus),
            joules=self._joules(cpu_seconds),
        )

    def _joules(self, cpu_seconds: float | None) -> float | None:
        found: list[float] = []
        spent = _difference(self._packages, _packages(self.powercap))
        busy = _busy_seconds() - self._busy
        if spent is not None and cpu_seconds is not None and busy > 0:
            found.append(spent * min(1.0, cpu_seconds / busy))
        gpus = _gpu_joules(self.gpus)
        if gpus is not None and self._of_gpus is not None:
            found.append(gpus - self._of_gpus)
        return sum(found) if found else None


@dataclass
class RunMeter:
    """What the stages of one run took so far. Safe to use from several threads."""

    settings: CostSettings
    _spent: Usage = field(default_factory=Usage)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, usage: Usage) -> None:
        """Count an execution that is over."""
        with self._lock:
            self._spent += usage

    def watch(self, gpus: int) -> Callable[[int, float], str]:
        """Return what says which budget a stage goes beyond, by its process and its seconds.

        Args:
            gpus: How many devices it holds.

        """
        if not self.settings.limited:
            return lambda _pid, _seconds: ""
        looked, said = 0.0, ""

        def beyond(pid: int, seconds: float) -> str:
            nonlocal looked, said
            if not said and seconds - looked >= _LOOK_SECONDS:
                looked = seconds
                running = Usage(seconds, cpu_seconds_of(pid), seconds * gpus)
                with self._lock:
                    said = self.settings.beyond(self._spent + running)
            return said

        return beyond

    def beyond(self) -> str:
        """Say which budget the stages that are over went beyond; empty within it."""
        with self._lock:
            return self.settings.beyond(self._spent)


def cpu_seconds_of(pid: int) -> float:
    """Read the processor time of a process and of all that it started, so far.

    Args:
        pid: Of the process.

    Returns:
        Seconds; 0 where there is none any more.

    """
    import psutil

    with suppress(psutil.Error):
        process = psutil.Process(pid)
        times = process.cpu_times()
        own = times.user + times.system + times.children_user + times.children_system
        for child in process.children(recursive=True):
            with suppress(psutil.Error):
                own += sum(child.cpu_times()[:2])
        return float(own)
    return 0.0


def _packages(folder: Path) -> dict[Path, tuple[float, float]]:
    """Microjoules of each package of the processor, and where its counter begins again."""
    found = {}
    for package in sorted(folder.glob("intel-rapl:[0-9]*")):
        if package.name.count(":") > 1:
            continue  # A part of a package, whose energy is in it.
        with suppress(OSError, ValueError):
            most = float((package / "max_energy_range_uj").read_text())
            found[package] = (float((package / "energy_uj").read_text()), most)
    return found


def _difference(
    before: dict[Path, tuple[float, float]], after: dict[Path, tuple[float, float]]
) -> float | None:
    """Joules between two readings; None where there is no counter that may be read."""
    both = before.keys() & after.keys()
    if not both:
        return None
    spent = 0.0
    for package in both:
        (first, most), (last, _) = before[package], after[package]
        spent += last - first + (most if last < first else 0.0)
    return spent * _MICRO


def _busy_seconds() -> float:
    """Processor time of the whole machine since it was started, idle time left out."""
    import psutil

    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    return float(sum(times[:8]) - idle)


def _gpu_joules(gpus: Sequence[str]) -> float | None:
    """Joules that devices took since their driver was loaded; None where nothing tells."""
    if not gpus:
        return None
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(int(name))
            if name.isdecimal()
            else pynvml.nvmlDeviceGetHandleByUUID(name)
            for name in gpus
        ]
        taken = [float(pynvml.nvmlDeviceGetTotalEnergyConsumption(each)) for each in handles]
    except pynvml.NVMLError:
        return None
    return sum(taken) * _MILLI
