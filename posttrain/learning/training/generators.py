"""The state of every random generator, so that code between two steps is resumed exactly too.

A step seeds torch by itself, and needs none of this; a loss or a hook of the user's own may draw
from any of these, and goes on where it was.
"""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from posttrain.stage.seeds import purpose_seed


def seed_torch(seed: int) -> None:
    """Seed torch as `torch.manual_seed` does, faster where CUDA was not started.

    Without a CUDA device that takes a third of a millisecond, as it writes down the stack of its
    caller for the day that CUDA is started.

    Args:
        seed: The seed.

    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def seed_step(seed: int, *purpose: str | int) -> int:
    """Seed torch for one step, from the seed of its stage.

    Args:
        seed: Of the stage.
        *purpose: What is random, and the step.

    Returns:
        What torch was seeded with.

    """
    derived = purpose_seed(seed, *purpose)
    seed_torch(derived)
    return derived


def generator_states() -> dict[str, Any]:
    """Of torch (and of every CUDA device in use), `random` and numpy, as tensors and numbers."""
    version, words, gauss = random.getstate()
    # The legacy generator: the one that `np.random.shuffle` and its kin draw from.
    state: Any = np.random.get_state(legacy=False)  # noqa: NPY002
    has_cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if has_cuda else [],
        "random": {"version": version, "words": torch.tensor(words), "gauss": gauss},
        "numpy": {
            "key": torch.from_numpy(state["state"]["key"].astype(np.int64)),
            "position": int(state["state"]["pos"]),
            "has_gauss": int(state["has_gauss"]),
            "gauss": float(state["gauss"]),
        },
    }


def restore_generators(states: Mapping[str, Any]) -> None:
    """Go on from what `generator_states` gave."""
    torch.set_rng_state(states["torch"].cpu())
    if states["cuda"]:
        torch.cuda.set_rng_state_all([state.cpu() for state in states["cuda"]])
    own = states["random"]
    random.setstate((own["version"], tuple(own["words"].tolist()), own["gauss"]))
    numpy = states["numpy"]
    key = numpy["key"].cpu().numpy().astype(np.uint32)
    np.random.set_state(  # noqa: NPY002
        ("MT19937", key, numpy["position"], numpy["has_gauss"], numpy["gauss"])
    )
