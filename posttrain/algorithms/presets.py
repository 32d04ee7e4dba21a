"""Published algorithms by name, each as the switches that its source states."""

from typing import NamedTuple

from posttrain.algorithms.config import Algorithm


class Preset(NamedTuple):
    """An algorithm with its name's story."""

    algorithm: Algorithm
    equation: str
    source: str
    """Title, authors and arXiv id of the paper, or the project and the file."""
    note: str
    """What a reader should know: choices the source leaves open, and how others differ."""


PRESETS: dict[str, Preset] = {
    "default": Preset(
        algorithm=Algorithm(),
        equation="A = r - mean(r of the group);  L = -1/N sum_t min(p A, clip(p, 0.8, 1.28) A)",
        source="posttrain",
        note="Group mean without division, clip-higher, token mean.",
    ),
}
