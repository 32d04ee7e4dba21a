"""What the parts of an algorithm gave: refused by name where it has the wrong shape or is NaN."""

import torch
from torch import Tensor

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
