"""What vLLM does to the process that it runs in: told beforehand, and undone afterwards."""

import os
import random
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch

from posttrain.stage.errors import UserError

_ENVIRONMENT = {
    # The engine's loop in this process: its weights can be written, and its draws are ours.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Of its two model runners the one that takes logits processors.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    # Threads are the stage's to set.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
}
_ON_CPU = "pip install --no-deps --requirement requirements-engines.txt"
_ON_GPU = "uv pip install --editable '.[vllm]'"


def import_vllm(device: torch.device) -> Any:
    """The package, told to stay in this process and off the network; `UserError` without it."""
    os.environ.update(_ENVIRONMENT)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        import vllm
    except ModuleNotFoundError as error:
        install = _ON_CPU if device.type == "cpu" else _ON_GPU
        missing = "" if error.name == "vllm" else f" ({error.name} is missing)"
        raise UserError(
            f"engine vllm is not installed{missing}; run: {install} (see the README), or take"
            " engine torch"
        ) from None
    return vllm


def unchanged_process() -> ExitStack:
    """Remembers, and on close restores, the random states and torch's functions that vLLM sets."""
    stack = ExitStack()
    stack.callback(setattr, torch, "set_num_threads", torch.set_num_threads)
    return stack


def random_states() -> ExitStack:
    """Keeps the generators of Python, numpy and torch as they are over its context."""
    stack = ExitStack()
    stack.callback(random.setstate, random.getstate())
    stack.callback(np.random.set_state, np.random.get_state())
    stack.enter_context(torch.random.fork_rng())
    return stack
