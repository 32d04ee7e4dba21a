"""AdamW for small models: torch's fused kernel, told where everything is only once."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class _Lists(NamedTuple):
    """What the kernel changes, weight by weight of one group."""

    parameters: list[Tensor]
    means: list[Tensor]
    squares: list[Tensor]
    steps: list[Tensor]


class SteadyAdamW(torch.optim.AdamW):
    """`torch.optim.AdamW`, bit for bit and with the same state; half its time for a small model.

    Torch gathers weights and moments and sorts them by device and type at every step. Here a step
    is torch's own only where it has to be: the first one, and one without all of the gradients.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        learning_rate: float,
        betas: tuple[float, float],
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            parameters, lr=learning_rate, betas=betas, weight_decay=weight_decay, fused=True
        )
        self._lists: list[_Lists] = []

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of all weights that have a gradient."""
        if closure is not None:
            raise ValueError("SteadyAdamW takes no closure")
        found = [
            [p.grad for p in group["params"] if p.grad is not None] for group in self.param_groups
        ]
        if not self._lists or any(
            len(gradients) < len(lists.parameters)
            for gradients, lists in zip(found, self._lists, strict=True)
        ):
            super().step()
            self._lists = self._gathered()
            return
        for group, gradients, lists in zip(self.param_groups, found, self._lists, strict=True):
            torch._foreach_add_(lists.steps, 1)
            torch._fused_adamw_(
                lists.parameters,
                gradients,
                lists.means,
                lists.squares,
                [],
                lists.steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from an earlier state, whose tensors take the place of the present ones."""
        super().load_state_dict(state_dict)
        self._lists = []

    def _gathered(self) -> list[_Lists]:
        """Group by group; nothing while a weight has no state, or where they are not all alike."""
        groups = [group["params"] for group in self.param_groups]
        alike = {(p.device, p.dtype) for parameters in groups for p in parameters}
        if len(alike) > 1 or any(p not in self.state for ps in groups for p in ps):
            return []
        return [
            _Lists(
                parameters,
                *(
                    [self.state[parameter][name] for parameter in parameters]
                    for name in ("exp_avg", "exp_avg_sq", "step")
                ),
            )
            for parameters in groups
        ]
