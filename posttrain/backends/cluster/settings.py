"""What one process computes with that another must share to get the same bits."""

import os
from dataclasses import dataclass

from posttrain.stage.kernels import (
    PORTABLE,
    REPEATABLE,
    THREADS,
    Kernels,
    bind_kernels,
    is_bound,
    kernel_environment,
)

_VARIABLES = (
    *THREADS,
    *REPEATABLE,
    *PORTABLE,
    "HF_HUB_DISABLE_TELEMETRY",
    "HF_HUB_DISABLE_PROGRESS_BARS",
)
"""Read once by native libraries, and none of them a secret: no other variable is sent along."""


def environment() -> dict[str, str]:
    """The variables of this process that one which works for it needs at its start."""
    return {name: os.environ[name] for name in _VARIABLES if name in os.environ}


@dataclass(frozen=True)
class TorchSettings:
    """Threads and kernels of torch."""

    threads: int
    deterministic: bool
    kernels: Kernels | None
    """Those it was bound to; None where nothing bound it, such as in a notebook."""
    version: str

    @classmethod
    def present(cls) -> "TorchSettings":
        """Those of this process."""
        import torch

        deterministic = torch.are_deterministic_algorithms_enabled()
        portable = kernel_environment("portable").items() <= os.environ.items()
        kernels: Kernels = "portable" if portable else "fast"
        bound = kernels if is_bound() else None
        return cls(torch.get_num_threads(), deterministic, bound, torch.__version__)

    def take_over(self) -> None:
        """Make them this process's own; `ValueError` for another torch than theirs."""
        import torch

        if torch.__version__ != self.version:
            raise ValueError(f"torch is {torch.__version__} here and {self.version} at the stage")
        if self.kernels is not None:
            bind_kernels(self.kernels)
        torch.set_num_threads(self.threads)
        torch.use_deterministic_algorithms(mode=self.deterministic)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
