"""SplitMix64: the one hash of 64-bit numbers, for draws without a state and for MinHash."""

import numpy as np
import numpy.typing as npt

U64Array = npt.NDArray[np.uint64]

_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def splitmix64(values: U64Array) -> U64Array:
    """Spread 64-bit values evenly, each by itself.

    Args:
        values: Any 64-bit numbers.

    Returns:
        The finalizer of SplitMix64 of each (Steele, Lea and Flood, OOPSLA 2014): a bijection.

    >>> [hex(value) for value in splitmix64(np.array([0x9E3779B97F4A7C15], dtype=np.uint64))]
    ['0xe220a8397b1dcdaf']

    """
    # Arithmetic wraps, as the algorithm wants.
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * _FIRST
        values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))
