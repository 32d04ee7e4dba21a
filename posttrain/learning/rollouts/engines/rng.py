"""Random numbers without a state: a hash of what the number is for.

A generator that is advanced draw by draw gives a sample that depends on who else was in the
batch, and on where a killed run stopped. A counter-based one does not: the number for
(seed, prompt, sample, step) is always the same.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from posttrain.data.mixing import splitmix64
from posttrain.stage.seeds import purpose_bytes

RowKeys = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def row_keys(seed: int, prompt_ids: Sequence[str], num_samples: int) -> RowKeys:
    """Make one 64-bit key per sample, from which all its random numbers follow.

    Args:
        seed: Of the call.
        prompt_ids: P ids.
        num_samples: Of each prompt.

    Returns:
        ``[P * num_samples]``, samples of a prompt adjacent.

    """
    hashes = [purpose_bytes(seed, prompt) for prompt in prompt_ids]
    # Little-endian by name: the machine's own order would give each kind its own numbers.
    prompts = np.frombuffer(b"".join(hashes), dtype="<u8").astype(np.uint64)
    indices = np.arange(num_samples, dtype=np.uint64)
    return splitmix64(prompts[:, None] + indices[None, :] * _GOLDEN).reshape(-1)


def uniforms(keys_B: RowKeys, step: int | RowKeys) -> Tensor:
    """Give one number for each key and step, the same whenever it is asked for.

    SplitMix64 (Steele, Lea and Flood, 2014) of key + step * golden ratio, its top 23 bits: with no
    more, a product with a float32 total can never round up to the total.

    Args:
        keys_B: Of `row_keys`.
        step: One step for all keys, one for each ``[B]``, or several for every key ``[T, 1]``.

    Returns:
        Numbers in [0, 1 - 2^-23], float32: ``[B]``, or ``[T, B]`` of several steps.

    """
    with np.errstate(over="ignore"):
        offsets = (np.asarray(step, dtype=np.uint64) + np.uint64(1)) * _GOLDEN
        bits = splitmix64(keys_B + offsets) >> np.uint64(41)
    return torch.from_numpy(bits.astype(np.float32)) * 2.0**-23
