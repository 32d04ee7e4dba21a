"""Optimizers: several of torch's as one object with one step and one state."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from posttrain.stage.errors import UserError


class NotFiniteError(UserError):
    """A loss or a gradient is NaN or infinite; the weights are still those before the step.

    But for a step that is taken within the backward pass, which says so.
    """


@dataclass(frozen=True)
class HeldBytes:
    """What stands beside the weights of an optimizer, and where."""

    gradients_at_once: bool = True
    """False where a gradient goes before the next one comes."""
    states_on_host: bool = False
    per_parameter: float = 0.0
    """Bytes a parameter beside gradients and the states of the parts."""


class Optimizer:
    """A few torch optimizers that step as one, with clipping and one learning rate."""

    def __init__(
        self, parameters: list[nn.Parameter], parts: Mapping[str, torch.optim.Optimizer]
    ) -> None:
        self.parameters = parameters
        self.parts = dict(parts)

    @property
    def members(self) -> dict[str, list[Tensor]]:
        """The parameters by the part that steps them."""
        return {
            name: [each for group in part.param_groups for each in group["params"]]
            for name, part in self.parts.items()
        }

    @property
    def held(self) -> "HeldBytes":
        """How what a step needs beside the weights is held."""
        return HeldBytes()

    def begin(self, learning_rate: float) -> None:
        """Set the rate of the coming step, whose gradients may come only now.

        Args:
            learning_rate: On AdamW's scale, for every parameter.

        """
        for part in self.parts.values():
            for group in part.param_groups:
                group["lr"] = learning_rate

    def backward(self, loss: Tensor, *, last: bool) -> None:  # noqa: ARG002
        """Accumulate the gradient of one micro-batch.

        Args:
            loss: Its share of the step's loss.
            last: True where no further gradient joins the step.

        """
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self, *, learning_rate: float, max_grad_norm: float | None) -> float:
        """Clip the gradients, take one step, and drop the gradients.

        Args:
            learning_rate: Rate of this step, on AdamW's scale, for every parameter.
            max_grad_norm: Gradients of a larger norm are scaled down to it; None leaves them.

        Returns:
            The norm of the gradients before clipping.

        Raises:
            NotFiniteError: The norm is NaN or infinite; the weights have not moved.

        """
        norm = self.clip(max_grad_norm)
        self.move(learning_rate)
        return norm

    def clip(self, max_grad_norm: float | None) -> float:
        """Scale the gradients down to a norm, if theirs is larger.

        Args:
            max_grad_norm: The norm; None only measures theirs.

        Returns:
            The norm of the gradients before.

        Raises:
            NotFiniteError: It is NaN or infinite.

        """
        norm = self.whole(norm_of(self.gradients()))
        if max_grad_norm is not None:
            self.scale(norm, max_grad_norm)
        return finite_norm(norm)

    def gradients(self) -> list[Tensor]:
        """Those that are there."""
        return [p.grad for p in self.parameters if p.grad is not None]

    def scale(self, norm: Tensor, max_grad_norm: float) -> None:
        """Scale the gradients of a norm down to another one, if that is smaller.

        Args:
            norm: Theirs.
            max_grad_norm: The other one.

        """
        nn.utils.clip_grads_with_norm_(self.parameters, max_grad_norm, norm, foreach=True)

    def move(self, learning_rate: float) -> None:
        """Take one step along the gradients as they are, and drop them."""
        self.begin(learning_rate)
        for part in self.parts.values():
            part.step()
        for parameter in self.parameters:
            parameter.grad = None

    def forget(self) -> None:
        """Drop what earlier gradients have left, so that the next step is like the first."""
        for part in self.parts.values():
            part.state.clear()

    def whole(self, norm: Tensor) -> Tensor:
        """The norm of all gradients; a subclass may have to put it together."""
        return norm

    def state_dict(self) -> dict[str, Any]:
        """The states of the parts, by name."""
        return {name: part.state_dict() for name, part in self.parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a state written by `state_dict`."""
        refuse_other_processes(state, 1)
        for name, part in self.parts.items():
            part.load_state_dict(state[name])


OF_PROCESSES = "of_processes"
"""Key of a state that each of several processes has written for itself: bytes of each."""


def refuse_other_processes(state: Mapping[str, Any], count: int) -> None:
    """Refuse a state of shards that were cut for another number of processes.

    Args:
        state: As it was read.
        count: Of processes now.

    Raises:
        UserError: It was another one.

    """
    made = len(state.get(OF_PROCESSES, "."))
    if made != count:
        raise UserError(
            f"the checkpoint has the optimizer's states of {made} processes as these cut them"
            f" (bfloat16 weights, 8-bit states or in_backward), and this stage has {count}; set"
            f" resources.processes to {made}, or remove the checkpoint"
        )


def is_narrow(tensor: Tensor) -> bool:
    """True of a tensor of bfloat16 or float16 numbers."""
    return tensor.is_floating_point() and tensor.element_size() < 4


def norm_of(gradients: Sequence[Tensor]) -> Tensor:
    """The 2-norm of some gradients together, in float32 at least."""
    if not any(is_narrow(each) for each in gradients):
        return nn.utils.get_total_norm(list(gradients), foreach=True)
    norms = [torch.linalg.vector_norm(each, dtype=torch.float32) for each in gradients]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm


def finite_norm(norm: Tensor, *, moved: str = "") -> float:
    """Read a norm, and refuse one that is not finite.

    Args:
        norm: Of a step's gradients.
        moved: What became of the weights, for the error.

    Returns:
        The norm.

    Raises:
        NotFiniteError: It is NaN or infinite.

    """
    scalar = float(norm)
    if not math.isfinite(scalar):
        raise NotFiniteError(
            f"the gradient is {scalar}, so training stopped{moved}; "
            "lower the learning rate or look for a broken batch"
        )
    return scalar
