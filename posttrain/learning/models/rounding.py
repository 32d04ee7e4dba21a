"""How a weight that was stepped in float32 becomes a bfloat16 number again.

A bfloat16 number has 8 significant bits, so neighbors lie 2^-8 to 2^-7 of their size apart, and
rounding to the nearest throws away every step that is smaller than half of that.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posttrain.learning.maths.reduce import widened
from posttrain.learning.models.optimization import RoundingKind
from posttrain.stage.seeds import purpose_seed


class Within(NamedTuple):
    """Which numbers of a piece of a weight are here, where others lie in other processes."""

    begin: int
    """The first, of all in a row."""
    of: int
    """How many the piece has."""


class Rounding:
    """To the nearest number, ties to the even one."""

    bytes_per_parameter = 0.0
    """What it remembers of each."""

    def widened(self, parameter: Tensor, index: int) -> Tensor:  # noqa: ARG002
        """The value from which a step is taken, in float32.

        Args:
            parameter: A weight, or a piece of a large one.
            index: Its place among all that are stepped.

        Returns:
            The weight itself where that is wide already, else a copy.

        """
        return widened(parameter.detach())

    def store(
        self,
        wide: Tensor,
        parameter: Tensor,
        *,
        index: int,  # noqa: ARG002
        step: int,  # noqa: ARG002
        within: Within | None = None,  # noqa: ARG002
    ) -> None:
        """Write a value into its weight.

        Args:
            wide: The value, in float32; nobody reads it again.
            parameter: The weight or piece, changed in place.
            index: Its place among all that are stepped.
            step: Steps that were made before this one.
            within: Which numbers of it these are; None is all.

        """
        parameter.copy_(wide)

    def state_dict(self) -> dict[str, Any]:
        """What the next steps go by, beside the weights themselves."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""


class Stochastic(Rounding):
    """Up or down by chance, so that the expected value is the value itself.

    Every weight of every step has noise of its own, which follows from a seed: no state is kept,
    and each of several processes draws that of its own numbers.

    Source: Gupta et al., arXiv 1502.02551, section 3; for bfloat16 weights without a float32 copy
    Zamirai et al., arXiv 2010.06192, section 3.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def store(
        self,
        wide: Tensor,
        parameter: Tensor,
        *,
        index: int,
        step: int,
        within: Within | None = None,
    ) -> None:
        """Write a value, rounded by chance; see `Rounding.store`."""
        seed = purpose_seed(self._seed, "rounding", step, index)
        generator = torch.Generator(device=wide.device).manual_seed(seed)
        parameter.copy_(stochastic_bf16_(wide, generator, within=within))


class Kahan(Rounding):
    """To the nearest, and what that leaves is kept in a bfloat16 number and joins the next step.

    Source: Kahan 1965; for bfloat16 weights Zamirai et al., arXiv 2010.06192, algorithm 1.
    """

    bytes_per_parameter = 2.0

    def __init__(self) -> None:
        self._left: dict[int, Tensor] = {}

    def widened(self, parameter: Tensor, index: int) -> Tensor:
        """Add what was left of the weight; see `Rounding.widened`."""
        wide = parameter.detach().float()
        left = self._left.get(index)
        return wide if left is None else wide.add_(left)

    def store(
        self,
        wide: Tensor,
        parameter: Tensor,
        *,
        index: int,
        step: int,  # noqa: ARG002
        within: Within | None = None,  # noqa: ARG002
    ) -> None:
        """Write a value, and keep what is left; see `Rounding.store`."""
        parameter.copy_(wide)
        self._left[index] = wide.sub_(parameter).to(parameter.dtype)

    def state_dict(self) -> dict[str, Any]:
        """What is left of each weight, by its place."""
        return {"left": dict(self._left)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self._left = dict(state["left"])


ROUNDERS: Mapping[RoundingKind, Callable[[int], Rounding]] = {
    "nearest": lambda _seed: Rounding(),
    "stochastic": Stochastic,
    "kahan": lambda _seed: Kahan(),
}
"""From a seed to what rounds, by the name in a recipe."""


def stochastic_bf16_(
    wide: Tensor, generator: torch.Generator, *, within: Within | None = None
) -> Tensor:
    """Round float32 numbers in place to neighboring bfloat16 numbers by chance, without bias.

    A bfloat16 number is the upper half of a float32 number. Below it lie 16 bits; a uniform number
    of 16 bits is added to them and they are cut off, so that the carry comes with the probability
    that they are of the way to the next number. One that needs no rounding stays as it is.

    Args:
        wide: Numbers in float32, contiguous; changed in place.
        generator: Of the noise, on the device of the numbers.
        within: Which numbers these are, of as many as noise is drawn for; None is all.

    Returns:
        The same tensor, whose numbers are now bfloat16 numbers.

    """
    noise = torch.randint(
        -(1 << 15),
        1 << 15,
        wide.shape if within is None else (within.of,),
        dtype=torch.int16,
        device=wide.device,
        generator=generator,
    )
    if within is not None:
        noise = noise[within.begin : within.begin + wide.numel()].view(wide.shape)
    # The sign has a bit of its own, so that adding moves away from zero on either side.
    wide.view(torch.int32).add_(1 << 15).add_(noise).bitwise_and_(-(1 << 16))
    return wide
