"""What is said of a named algorithm beside its switches."""

from typing import NamedTuple

from posttrain.learning.algorithms.config import Algorithm


class Preset(NamedTuple):
    """An algorithm with the story of its name."""

    algorithm: Algorithm
    equation: str
    """Advantage and loss. A: advantage, r: reward, ρ: ratio to the old policy, sg: no gradient."""
    source: str
    """Paper, authors and arXiv id; or project and file, read at a stated commit."""
    note: str
    """What the source leaves open, what is the stage's to set, and how others differ."""
