"""What the parts of an algorithm gave and measured; refused by name where it has a wrong shape."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch
from posttrain.learning.algorithms.part import AlgorithmPart
from posttrain.stage.errors import UserError
from posttrain.stage.slots import name_of


class PartOutputs:
    """Notes on what the parts were given and gave for some batches: finite or not.

    They are read back from the device only where a loss or a gradient is not finite.
    """

    def __init__(self) -> None:
        self._notes: list[tuple[str, Tensor, Tensor]] = []

    def note(self, origin: str, drawn: Tensor, everywhere: Tensor) -> None:
        """Take note of a tensor.

        Args:
            origin: Where it is from; empty for the policy's own log-probabilities.
            drawn: A truth value: all its numbers at drawn tokens are finite.
            everywhere: All its numbers are, at padding too.

        """
        self._notes.append((origin, drawn, everywhere))

    def culprit(self, *, padding: bool = False) -> str:
        """Name the first tensor that is not finite.

        Args:
            padding: Count what stands at padding. No loss does, but NaN there makes the gradient
                NaN: a mask takes it out of the sum, and 0 x NaN goes back through the formula.

        Returns:
            Its origin; empty where there is none, or where it is the policy's own.

        """
        return next((origin for origin, *finite in self._notes if not bool(finite[padding])), "")


@dataclass
class MeasuredPast:
    """The first value and the mean of some metrics over a run's updates; part of its checkpoint."""

    _by_metric: dict[str, list[float]] = field(default_factory=dict)
    """First value, sum of all values, and their number."""

    def note(self, metrics: Mapping[str, float], followed: Sequence[str]) -> None:
        """Add what an update measured.

        Args:
            metrics: All of it.
            followed: Names of those that count.

        """
        for name in followed:
            first, total, count = self._by_metric.get(name, (metrics[name], 0.0, 0))
            self._by_metric[name] = [first, total + metrics[name], count + 1]

    def of(self, followed: Sequence[str], *, device: str) -> Tensor | None:
        """Tell what some metrics were.

        Args:
            followed: Their names.
            device: Where the tensor goes.

        Returns:
            First value and mean of each, ``[K, 2]``; None before the first update, or for none.

        """
        if not followed or not self._by_metric:
            return None
        past = [self._by_metric[name] for name in followed]
        return torch.tensor([(first, total / n) for first, total, n in past], device=device)

    def state_dict(self) -> dict[str, Any]:
        """Return it by metric."""
        return {name: [*values] for name, values in self._by_metric.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self._by_metric = {name: [*values] for name, values in state.items()}


def refuse_shape(
    part: AlgorithmPart, method: str, shape: object, like_BT: Tensor | None, *, shared: bool
) -> None:
    """Refuse what has another shape than a part is to give.

    Args:
        part: The part.
        method: What was called.
        shape: Shape of the tensor that it gave, or what it gave instead of one.
        like_BT: A tensor of one number per token; None where a scalar is wanted.
        shared: Allow one number per rollout too.

    Raises:
        UserError: The shape is another.

    """
    sizes = {} if like_BT is None else {"[B, T] = ": list(like_BT.shape)}
    if like_BT is not None and shared:
        sizes["[B, 1] = "] = [len(like_BT), 1]
    allowed = list(sizes.values()) or [[]]
    if isinstance(shape, torch.Size) and list(shape) in allowed:
        return
    came = f"a tensor of shape {list(shape)}" if isinstance(shape, torch.Size) else repr(shape)
    wanted = " or ".join(f"{letters}{each}" for letters, each in sizes.items()) or "[], a scalar"
    raise UserError(refusal(part, method, came, f"a tensor of shape {wanted}"))


def refusal(part: AlgorithmPart, method: str, came: str, wanted: str) -> str:
    """Say what a part gave, and what it should give instead.

    Args:
        part: The part.
        method: What was called.
        came: What it gave.
        wanted: What it should give.

    Returns:
        The sentence.

    """
    return f"{name_of(part)}: `{method}` gave {came:.60}; let it give {wanted}"


def generated(
    part: AlgorithmPart, method: str, value: object, rollouts: RolloutBatch, *, shared: bool = False
) -> Tensor:
    """Return what a part gave for a whole generation.

    Args:
        part: The part.
        method: What was called.
        value: What it gave.
        rollouts: What it gave it for.
        shared: Allow one number per rollout too.

    Returns:
        The same, a finite number for each drawn token.

    Raises:
        UserError: It is something else.

    """
    mask_BT, outputs = rollouts.mask_BT, PartOutputs()
    like_BT = torch.ones_like(rollouts.rewards_B)[:, None] if mask_BT is None else mask_BT
    found = given(part, method, value, like_BT, outputs, shared=shared)
    if outputs.culprit():
        raise UserError(refusal(part, method, "NaN or infinity", "finite numbers"))
    return found


def given(
    part: AlgorithmPart,
    method: str,
    value: object,
    mask_BT: Tensor | None,
    outputs: PartOutputs,
    *,
    shared: bool = False,
) -> Tensor:
    """Return what a part gave, and take note of it.

    Args:
        part: The part.
        method: What was called.
        value: What it gave.
        mask_BT: Whose shape it has; None where it is a scalar.
        outputs: Takes the note.
        shared: Allow one number per rollout too.

    Returns:
        The same.

    Raises:
        UserError: It has another shape.

    """
    shape = value.shape if isinstance(value, Tensor) else value
    refuse_shape(part, method, shape, mask_BT, shared=shared)
    assert isinstance(value, Tensor)
    outputs.note(f"{name_of(part)}: `{method}`", *_finite(value, mask_BT))
    return value


def note_given(outputs: PartOutputs, logprobs_BT: Tensor, batch: PolicyBatch) -> None:
    """Take note of what the parts are given, of which no part is to blame.

    Args:
        outputs: Takes the notes.
        logprobs_BT: Of the policy that learns.
        batch: The rollouts.

    """
    outputs.note("", *_finite(logprobs_BT, batch.mask_BT))
    for name, each in vars(batch).items():
        if name == "log_all_NV":
            continue  # It has what `logprobs_BT` has, once more for every token that was not drawn.
        if isinstance(each, Tensor) and each.is_floating_point():
            mask_BT = batch.mask_BT if name.endswith("_BT") else None
            outputs.note(f"`{name}` of the batch", *_finite(each, mask_BT))


def _finite(value: Tensor, mask_BT: Tensor | None) -> tuple[Tensor, Tensor]:
    """Truth values, left on the device: finite at the drawn tokens, and everywhere."""
    finite = value.detach().isfinite()
    everywhere = finite.all()
    return everywhere if mask_BT is None else (finite | ~mask_BT.bool()).all(), everywhere


def pair_of(part: AlgorithmPart, method: str, value: object, wanted: str) -> tuple[Any, Any]:
    """Return the two things that a part gave.

    Args:
        part: The part.
        method: What was called.
        value: What it gave.
        wanted: What they should be, in words.

    Returns:
        The same.

    Raises:
        UserError: It is no pair.

    """
    if isinstance(value, tuple) and len(value) == 2:
        return value
    raise UserError(refusal(part, method, f"a {type(value).__name__}", f"two things: {wanted}"))
