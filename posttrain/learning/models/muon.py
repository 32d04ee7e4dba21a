"""Muon for many small matrices: torch's update, with equal shapes orthogonalised together."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class BatchedMuon(torch.optim.Muon):
    """`torch.optim.Muon`, several times faster where kernels are small.

    Same momentum, Newton-Schulz iteration and state as torch's with `match_rms_adamw`; the matrices
    of one shape (transposes included) go through it as one batch, on a CPU in float32.
    """

    def __init__(
        self, parameters: Iterable[Tensor], *, learning_rate: float, weight_decay: float
    ) -> None:
        super().__init__(
            parameters,
            lr=learning_rate,
            weight_decay=weight_decay,
            adjust_lr_fn="match_rms_adamw",
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of all matrices that have a gradient."""
        if closure is not None:
            raise ValueError("Muon takes no closure")
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self._step_group(group, parameters)

    def _step_group(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        buffers = [self._momentum(parameter) for parameter in parameters]
        gradients = [p.grad for p in parameters if p.grad is not None]
        weight = 1 - group["momentum"]
        torch._foreach_lerp_(buffers, gradients, weight)
        updates = buffers
        if group["nesterov"]:
            updates = list(torch._foreach_lerp(gradients, buffers, group["momentum"]))
        if group["weight_decay"]:
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        for members in _by_shape(parameters).values():
            wide = [parameters[i].shape[0] <= parameters[i].shape[1] for i in members]
            matrices = [self.whole(updates[i]) for i in members]
            stack = torch.stack([m if w else m.mT for m, w in zip(matrices, wide, strict=True)])
            orthogonal = newton_schulz(
                stack, group["ns_coefficients"], group["ns_steps"], group["eps"]
            )
            # 0.2 sqrt(longer side) gives the update AdamW's usual root mean square.
            rate = group["lr"] * 0.2 * max(stack.shape[1:]) ** 0.5
            for i, w, update in zip(members, wide, orthogonal, strict=True):
                self.move(parameters[i], update if w else update.mT, rate)

    def whole(self, update: Tensor) -> Tensor:
        """The matrix of one update; a subclass may have to put it together."""
        return update

    def move(self, parameter: Tensor, update: Tensor, rate: float) -> None:
        """Take one step against `update`.

        Args:
            parameter: A matrix, changed in place.
            update: The orthogonalized momentum, of its shape.
            rate: Learning rate, with the factor for the matrix's shape.

        """
        parameter.add_(update, alpha=-rate)

    def _momentum(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        buffer: Tensor = state["momentum_buffer"]
        return buffer


def newton_schulz(
    matrices_NAB: Tensor, coefficients: tuple[float, float, float], num_steps: int, eps: float
) -> Tensor:
    """Push the singular values of each matrix towards 1.

    In bfloat16, as its authors do, on a GPU. On a CPU in float32: where there are no products of
    bfloat16 (AVX2, or kernels that are bound to it) they take twenty times as long, where there are
    (AVX512_BF16) two thirds to half.

    Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon: ``X <- a X + (b A + c A^2) X``
    with ``A = X X^T``, after division by the Frobenius norm.

    Args:
        matrices_NAB: N matrices of one shape, no taller than wide.
        coefficients: The a, b and c of the quintic.
        num_steps: Iterations.
        eps: Least norm to divide by.

    Returns:
        Matrices of the same shape, in the numbers of the iteration.

    """
    a, b, c = coefficients
    x_NAB = matrices_NAB.float() if matrices_NAB.is_cpu else matrices_NAB.bfloat16()
    # The Frobenius norm is no less than the spectral one, and the iteration converges from
    # singular values of at most 1.
    x_NAB = x_NAB / x_NAB.norm(dim=(-2, -1), keepdim=True).clamp(min=eps)
    for _ in range(num_steps):
        gram_NAA = x_NAB @ x_NAB.mT
        update_NAA = torch.baddbmm(gram_NAA, gram_NAA, gram_NAA, beta=b, alpha=c)
        x_NAB = torch.baddbmm(x_NAB, update_NAA, x_NAB, beta=a)
    return x_NAB


def _by_shape(parameters: list[Tensor]) -> dict[tuple[int, ...], list[int]]:
    """Indices of the parameters by shape, a matrix and its transpose counting as one."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, parameter in enumerate(parameters):
        groups.setdefault(tuple(sorted(parameter.shape)), []).append(index)
    return groups
