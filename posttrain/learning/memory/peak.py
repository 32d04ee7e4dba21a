"""Moments of a stage, what stands at each, and the one at which most does."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

POLICY, GATHERED, STATES, GRADIENTS = "weights", "gathered", "states", "gradients"
ACTIVATIONS, HEAD, REFERENCE, VALUES = "activations", "head", "reference", "values"
CACHE, OTHERS, STEP = "cache", "others", "step"

PARTS: Mapping[str, str] = {
    POLICY: "of the policy, adapters and their moving average with it",
    GATHERED: "weights of other processes, while a layer is computed with",
    STATES: "what the optimizer remembers of each trained weight",
    GRADIENTS: "of the trained weights",
    ACTIVATIONS: "kept for the backward pass, and what a layer needs meanwhile",
    HEAD: "output head: a chunk of logits, its softmax and their gradients",
    REFERENCE: "the policy that divergences and log-ratios are taken to",
    VALUES: "value model, with its own gradients, states and activations",
    CACHE: "keys and values of what is being sampled, and the logits drawn from",
    OTHERS: "further models that the stage has loaded",
    STEP: "what a step of the optimizer needs for as long as it lasts",
}
"""What takes memory, by name, as tables and JSON have it."""


@dataclass(frozen=True)
class Moment:
    """Bytes by part at one point of a stage."""

    name: str
    parts: Mapping[str, int]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.parts.values())

    def beside(self, more: Mapping[str, int]) -> "Moment":
        """The same with other parts standing there too."""
        names = [*self.parts, *(name for name in more if name not in self.parts)]
        joined = {name: self.parts.get(name, 0) + more.get(name, 0) for name in names}
        return Moment(self.name, joined)


def peak_of(moments: Iterable[Moment]) -> Moment:
    """Return the moment with most bytes; the first of equal ones."""
    return max(moments, key=lambda each: each.total)
