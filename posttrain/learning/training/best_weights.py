"""The weights that the best measurement was of, kept while training goes on."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from posttrain.learning.training.prepare import Trainable


class BestWeights:
    """Copies of what would be saved: the weights that are trained, or their moving average.

    Part of a checkpoint, so that a resumed run ends with the same ones. `mark` notes what the next
    measurement is of, `keep` says that it was the best so far.
    """

    def __init__(self, trainable: Trainable) -> None:
        self._trainable = trainable
        self._marked: dict[str, Tensor] = {}
        self._best: dict[str, Tensor] = {}
        self.step = 0
        """Steps whose updates the best weights have; 0 where nothing was measured."""

    def mark(self) -> None:
        """Note the weights as they are now."""
        average = self._trainable.average
        source = average.averages if average else self._parameters()
        self._marked = {name: tensor.detach().clone() for name, tensor in source.items()}

    def keep(self, step: int) -> None:
        """What was marked, after `step` steps, is the best so far."""
        self._best, self.step = self._marked, step

    @torch.no_grad()
    def put_in_place(self) -> None:
        """Make the best weights the model's, after `Trainable.finish`; nothing where none are."""
        parameters = self._parameters()
        for name, tensor in self._best.items():
            parameters[name].copy_(tensor)

    def state_dict(self) -> dict[str, Any]:
        """Both sets of weights, and the step of the best."""
        return {"marked": self._marked, "best": self._best, "step": self.step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self._marked, self._best = dict(state["marked"]), dict(state["best"])
        self.step = int(state["step"])

    def _parameters(self) -> dict[str, Tensor]:
        named = self._trainable.model.named_parameters()
        return {name: parameter for name, parameter in named if parameter.requires_grad}
