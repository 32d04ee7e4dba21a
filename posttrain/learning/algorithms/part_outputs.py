"""What the parts of an algorithm gave: refused by name where it has the wrong shape or is NaN."""

import torch
from torch import Tensor

from posttrain.learning.algorithms.part import AlgorithmPart
from posttrain.stage.errors import UserError
from posttrain.stage.slots import name_of


class PartOutputs:
    """What the parts gave for some batches: of the right shape, and finite or not.

    Whether a tensor is finite is read back from the device only where a loss is not.
    """

    def __init__(self) -> None:
        self._finite: list[tuple[str, Tensor]] = []

    def given(self, logprobs_BT: Tensor, mask_BT: Tensor) -> None:
        """Take note of the policy's log-probabilities, which the parts are given.

        Args:
            logprobs_BT: Of the drawn tokens, in nats.
            mask_BT: True at the drawn tokens.

        """
        self._finite.append(("", _all_finite(logprobs_BT, mask_BT)))

    def take(
        self,
        part: AlgorithmPart,
        method: str,
        value: object,
        mask_BT: Tensor | None,
        *,
        shared: bool = False,
    ) -> Tensor:
        """Take note of what a part gave.

        Args:
            part: The part.
            method: What was called.
            value: What it gave: `[B, T]` as the mask, or a scalar where that is None.
            mask_BT: Where it counts.
            shared: Allow `[B, 1]` too.

        Returns:
            The same tensor.

        Raises:
            UserError: It is none, or has another shape.

        """
        shape = value.shape if isinstance(value, Tensor) else value
        refuse_shape(part, method, shape, mask_BT, shared=shared)
        assert isinstance(value, Tensor)
        self._finite.append((f"{name_of(part)}: `{method}`", _all_finite(value, mask_BT)))
        return value

    def culprit(self) -> str:
        """Name the first that gave a number that is not finite; empty where no part is to blame."""
        return next((origin for origin, finite in self._finite if not bool(finite)), "")


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
    return f"rl: {name_of(part)}: `{method}` gave {came:.60}; let it give {wanted}"


def _all_finite(value: Tensor, mask_BT: Tensor | None) -> Tensor:
    """A truth value, left on the device."""
    finite = value.detach().isfinite()
    return (finite if mask_BT is None else finite | ~mask_BT.bool()).all()
