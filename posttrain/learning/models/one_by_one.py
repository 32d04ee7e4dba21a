"""Steps that are taken for one weight tensor after the other, each in float32 while it lasts.

So no second copy of the weights stands in float32, gradients go as they are used, and moments may
lie elsewhere in the meantime.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from posttrain.learning.maths.reduce import widened
from posttrain.learning.models.optim import HeldBytes, Optimizer, finite_norm, norm_of
from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.models.rounding import ROUNDERS, Rounding, Within

Build = Callable[[Sequence[Sequence[Tensor]]], Mapping[str, torch.optim.Optimizer]]
"""From the stand-ins of each parameter to optimizers by name."""

Kinds = tuple[Callable[..., "OneByOneOptimizer"], Callable[..., "OneByOneOptimizer"]]
"""What steps after the backward pass, and what within it."""

PIECE_ELEMENTS = {"cpu": 1 << 18}
MANY_ELEMENTS = 1 << 22
"""Numbers of a parameter that are float32 at a time, if it has twice as many: on a GPU few enough
pieces that starting kernels takes no time. Whole blocks of 256, so that states of 8 bits are those
of the whole."""


class WeightPiece(NamedTuple):
    """A parameter, or a part of it, that is stepped at once."""

    parameter: int
    """Place of the parameter."""
    number: int
    """Of the piece, among all that one process has: noise goes by it."""
    begin: int = 0
    end: int | None = None
    """Of the numbers here in a row; None is all of them, in their shape."""
    within: Within | None = None
    """Which of the piece's numbers are here; None is all."""

    def of(self, tensor: Tensor) -> Tensor:
        """The piece's numbers in a tensor of the parameter's shape."""
        return tensor if self.end is None else tensor.reshape(-1)[self.begin : self.end]


class OneByOneOptimizer(Optimizer):
    """As `Optimizer`, to the same bits where the weights are float32.

    The optimizers of torch are built over stand-ins, which are empty but for the moment in which
    their parameter, or a piece of it, is stepped. So their states are of float32 weights, also in
    checkpoints.
    """

    _gradients_at_once = True

    def __init__(
        self,
        parameters: list[nn.Parameter],
        build: Build,
        *,
        rounding: Rounding,
        in_pieces: bool,
        offload: bool = False,
    ) -> None:
        self._pieces = self.cut(parameters, in_pieces=in_pieces)
        self._empty = [
            _empty(parameters[each.parameter], each, on_host=offload) for each in self._pieces
        ]
        self._stand_ins = [nn.Parameter(each) for each in self._empty]
        self._places: list[list[int]] = [[] for _ in parameters]
        for place, piece in enumerate(self._pieces):
            self._places[piece.parameter].append(place)
        super().__init__(
            parameters, build([[self._stand_ins[at] for at in each] for each in self._places])
        )
        self._rounding = rounding
        self._offload = offload
        self._num_steps = 0
        self._scale: Tensor | None = None
        places = {id(tensor): number for number, tensor in enumerate(self._stand_ins)}
        # By number, as an optimizer that takes up a state has other groups behind it.
        self._owners = {
            places[id(tensor)]: (name, number)
            for name, part in self.parts.items()
            for number, group in enumerate(part.param_groups)
            for tensor in group["params"]
        }

    def cut(self, parameters: Sequence[Tensor], *, in_pieces: bool) -> list[WeightPiece]:
        """Cut parameters into what is stepped at once.

        Args:
            parameters: What is trained.
            in_pieces: Whether a large one may come in several.

        Returns:
            The pieces, in their order.

        """
        pieces: list[WeightPiece] = []
        for index, parameter in enumerate(parameters):
            borders = piece_borders(parameter) if in_pieces and parameter.is_contiguous() else []
            if len(borders) < 2:
                pieces.append(WeightPiece(index, len(pieces)))
                continue
            for begin, end in borders:
                pieces.append(WeightPiece(index, len(pieces), begin, end))
        return pieces

    def here(self, tensor: Tensor) -> Tensor:
        """What this process has of a parameter or of its gradient: all of it."""
        return tensor

    def gradients(self) -> list[Tensor]:
        """What is here of those that are there; see `Optimizer.gradients`."""
        return [self.here(gradient) for gradient in super().gradients()]

    @property
    def members(self) -> dict[str, list[Tensor]]:
        """The parameters by the part that steps them."""
        found: dict[str, list[Tensor]] = {name: [] for name in self.parts}
        for parameter, places in zip(self.parameters, self._places, strict=True):
            if places:
                found[self._owners[places[0]][0]].append(parameter)
        return found

    @property
    def held(self) -> HeldBytes:
        """As the states of the parts, but for the host's memory and what is left of roundings."""
        return HeldBytes(
            gradients_at_once=self._gradients_at_once,
            states_on_host=self._offload,
            per_parameter=self._rounding.bytes_per_parameter,
        )

    def scale(self, norm: Tensor, max_grad_norm: float) -> None:
        """Keep the factor until gradients are float32; see `Optimizer.scale`."""
        # As `torch.nn.utils.clip_grads_with_norm_` has it.
        self._scale = (max_grad_norm / (norm + 1e-6)).clamp(max=1.0)

    def move(self, learning_rate: float) -> None:
        """Take one step along the gradients as they are, and drop them."""
        self.begin(learning_rate)
        for index, parameter in enumerate(self.parameters):
            if parameter.grad is not None:
                self.step_one(index)
        self._scale = None
        self._num_steps += 1

    @torch.no_grad()
    def step_one(self, index: int) -> None:
        """Take the step of one parameter, and drop its gradient.

        Args:
            index: Its place; it has a gradient.

        """
        parameter = self.parameters[index]
        assert parameter.grad is not None
        gradient = self.here(parameter.grad)
        parameter.grad = None
        for place in self._places[index]:
            self._step_piece(place, self._pieces[place].of(gradient))
        # Whoever still wants the old value is told so, in place of computing with the new one.
        increment_version(self.here(parameter))

    def _step_piece(self, place: int, gradient: Tensor) -> None:
        piece, stand_in = self._pieces[place], self._stand_ins[place]
        weight = piece.of(self.here(self.parameters[piece.parameter]).detach())
        stand_in.data = self._rounding.widened(weight, piece.number)
        stand_in.grad = widened(gradient)
        if self._scale is not None:
            stand_in.grad.mul_(self._scale.to(gradient.device))
        with self._alone(place) as part:
            part.step()
        stand_in.grad = None
        if stand_in.data_ptr() != weight.data_ptr():
            self._rounding.store(
                stand_in.data,
                weight,
                index=piece.number,
                step=self._num_steps,
                within=piece.within,
            )
        stand_in.data = self._empty[place]

    @contextmanager
    def _alone(self, place: int) -> Iterator[torch.optim.Optimizer]:
        """What steps a piece, as if there were no other."""
        name, group = self._owners[place]
        part, stand_in = self.parts[name], self._stand_ins[place]
        every = part.param_groups
        part.param_groups = [{**every[group], "params": [stand_in]}]
        if self._offload:
            _move_state(part, stand_in, stand_in.device)
        try:
            yield part
        finally:
            part.param_groups = every
            if self._offload:
                _move_state(part, stand_in, torch.device("cpu"))

    def state_dict(self) -> dict[str, Any]:
        """The states of the parts, and what the rounding goes by."""
        own = {"num_steps": self._num_steps, "rounding": self._rounding.state_dict()}
        return {**super().state_dict(), "one_by_one": own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a state written by `state_dict`."""
        super().load_state_dict(state)
        own = state["one_by_one"]
        self._num_steps = int(own["num_steps"])
        self._rounding.load_state_dict(own["rounding"])


class InBackwardOptimizer(OneByOneOptimizer):
    """Steps each parameter within the last backward pass of a step, as its gradient is complete.

    Source: Lv et al., arXiv 2306.09782, section 3.1 (LOMO's fused update, there of SGD).
    """

    _gradients_at_once = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._norms: list[Tensor] = []
        self._is_last = False
        for index, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(self._hook(index))  # type: ignore[no-untyped-call]

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Step what is complete in the last micro-batch; see `Optimizer.backward`."""
        self._is_last = last
        try:
            super().backward(loss, last=last)
        finally:
            self._is_last = False

    def clip(self, max_grad_norm: float | None) -> float:
        """Measure the norm of the step's gradients, most of which are gone.

        Args:
            max_grad_norm: None; nothing can be clipped any more.

        Returns:
            The norm.

        Raises:
            NotFiniteError: It is NaN or infinite, and weights have moved.

        """
        assert max_grad_norm is None
        norms, self._norms = [*self._norms, *(norm_of([each]) for each in self.gradients())], []
        norm = norm_of([torch.stack(norms)]) if norms else torch.tensor(0.0)
        return finite_norm(
            self.whole(norm),
            moved=", and a part of the weights has moved already (optimization.in_backward), but no"
            " checkpoint was written since: the one before is untouched",
        )

    def _hook(self, index: int) -> Callable[[Tensor], None]:
        def step(parameter: Tensor) -> None:
            if self._is_last:
                assert parameter.grad is not None
                self._norms.append(norm_of([self.here(parameter.grad)]))
                self.step_one(index)

        return step


def one_by_one(
    parameters: list[nn.Parameter],
    build: Build,
    config: OptimizationConfig,
    *,
    seed: int,
    kinds: Kinds | None = None,
) -> OneByOneOptimizer:
    """Build what steps parameters one by one.

    Args:
        parameters: What is trained.
        build: From what stands in for each of them to optimizers by name.
        config: How weights are rounded, when they are stepped, and where moments lie.
        seed: Of what is random in the rounding.
        kinds: What steps after the backward pass, and within it; None is one process's.

    Returns:
        The optimizer.

    """
    after, within = kinds or (OneByOneOptimizer, InBackwardOptimizer)
    kind = within if config.in_backward else after
    return kind(
        parameters,
        build,
        rounding=ROUNDERS[config.rounding or "stochastic"](seed),
        in_pieces=config.optimizer.ELEMENTWISE,
        offload=config.offload,
    )


def piece_borders(parameter: Tensor) -> list[tuple[int, int]]:
    """Cut the numbers of a parameter in a row into pieces of which none is small.

    Args:
        parameter: Of any size, here or in shards.

    Returns:
        Where each piece begins and ends.

    """
    size = PIECE_ELEMENTS.get(parameter.device.type, MANY_ELEMENTS)
    begins = [number * size for number in range(max(1, parameter.numel() // size))]
    return list(zip(begins, [*begins[1:], parameter.numel()], strict=True))


def _empty(parameter: Tensor, piece: WeightPiece, *, on_host: bool) -> Tensor:
    """Nothing, with a piece's number of dimensions and in the type that it is stepped in."""
    dtype = widened(torch.empty(0, dtype=parameter.dtype)).dtype
    device = "cpu" if on_host else parameter.device
    shape = (0,) if piece.end is not None else (0,) * max(1, parameter.ndim)
    return torch.empty(shape, dtype=dtype, device=device)


def _move_state(part: torch.optim.Optimizer, tensor: Tensor, device: torch.device) -> None:
    """Bring what an optimizer remembers of a tensor to a device."""
    state = part.state[tensor]
    for name, value in state.items():
        if isinstance(value, Tensor):
            state[name] = value.to(device)
