"""The slot of the optimizers: what a part of it implements."""

from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from torch import Tensor

StateFormat = Literal["fp32", "8bit"]


class TrainedTensors(NamedTuple):
    """The tensors that are trained, in two sorts.

    Of tensors that are held in bfloat16 these are stand-ins: float32, of the same number of
    dimensions (or pieces of one), and empty but for the moment in which they are stepped.
    """

    matrices: "Sequence[Tensor]"
    """Of the layers: two dimensions, neither embedding nor output head."""
    others: "Sequence[Tensor]"
    """Embeddings, output heads, norms and biases, which are not pulled to zero."""


class OptimizerPart(Part):
    """How gradients become steps."""

    BRIEF: ClassVar[bool] = True
    STATES: ClassVar[frozenset[StateFormat]] = frozenset({"fp32"})
    """Formats in which it can keep what it remembers of earlier gradients."""
    BY_PARAMETER: ClassVar[bool] = True
    """Whether it may step each parameter within the backward pass, as soon as its gradient is
    there and before the others have theirs."""

    ELEMENTWISE: ClassVar[bool] = True
    """Whether a number's step depends on no other number's gradient, or on those of its block of
    256 alone: a large tensor may then come in pieces, one after the other, of one dimension."""

    def build(
        self, tensors: TrainedTensors, *, weight_decay: float, states: StateFormat, sharded: bool
    ) -> "Mapping[str, torch.optim.Optimizer]":
        """Build what steps the tensors; each tensor is in exactly one of its parameter groups.

        Args:
            tensors: What is trained.
            weight_decay: Decoupled weight decay of the matrices.
            states: Format of what is remembered; one of `STATES`.
            sharded: True where each tensor is a shard of one process.

        Returns:
            Optimizers of torch by name, which is also their name in checkpoints. Their learning
            rate is set before every step, and one step may be asked for a single tensor at a time.

        """
        raise NotImplementedError
