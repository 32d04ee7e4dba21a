"""What a checkpoint can hold beside tensors: plain values, which run no code when they are read."""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Any

import torch

# What `torch.load` reads back with `weights_only`, beside containers.
_PLAIN = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, bytearray),
        *(torch.Tensor, torch.nn.Parameter, torch.Size, torch.device, torch.dtype),
    }
)


def foreign(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Find what is neither plain nor a tensor in a state.

    Args:
        value: The state, or a part of it.
        place: The keys that lead to the part.

    Yields:
        The keys that lead to each such value, and the value.

    """
    if type(value) in (dict, OrderedDict, Counter):
        for key, each in value.items():
            yield from foreign(key, f"the key {place}[{key!r}]")
            yield from foreign(each, f"{place}[{key!r}]")
    elif type(value) in (list, tuple, set):
        for index, each in enumerate(value):
            yield from foreign(each, f"{place}[{index}]")
    elif type(value) not in _PLAIN:
        yield place, value
