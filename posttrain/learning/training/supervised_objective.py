"""What supervised training minimizes: a loss, and the batches of every step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from torch import Tensor

from posttrain.data.batching import AnyBatch, Batches

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Loss = Callable[["PreTrainedModel", AnyBatch, float], tuple[Tensor, Mapping[str, Tensor]]]
Gather = Callable[["PreTrainedModel", list[AnyBatch], int], list[AnyBatch]]


@dataclass(frozen=True)
class RoutedRows:
    """Tokens of a micro-batch as they go through a model."""

    input_ids_BT: Tensor
    learned_BT: Tensor
    """True at tokens that bear loss; what comes after the last of a row is padding."""
    position_ids_BT: Tensor | None = None
    """Of packed rows."""

    @property
    def real_BT(self) -> Tensor:
        """False at padding."""
        after_BT = self.learned_BT.flip(-1).cumsum(-1).flip(-1)
        return after_BT > 0


@dataclass(frozen=True)
class SupervisedObjective(Generic[AnyBatch]):
    """A loss, the batches that it is taken on, and what is held out of them."""

    batches: Batches[AnyBatch]
    """The micro-batches of every step, planned before the first one."""
    loss: Loss[AnyBatch]
    """``loss(model, micro_batch, denominator)`` is given the units of the whole step, so that
    micro-batches add up to the one-batch gradient; its metrics must be means over the units."""
    heldout: Batches[AnyBatch] | None = None
    """What the early stop measures."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """The inputs by name: a checkpoint that was made of others is refused."""
    gather: Gather[AnyBatch] | None = None
    """``gather(model, parts, step)`` completes a step's parts by what depends on all of them, or on
    the policy as it is then."""
    routed: Callable[[AnyBatch], RoutedRows] | None = None
    """Gives the tokens of a micro-batch, where a mixture of experts may balance its router."""
    gather_heldout: Gather[AnyBatch] | None = None
    """The same of all that is held out; its parts are complete where this is None."""
    loss_at: Callable[[Any], Loss[AnyBatch]] | None = None
    """Gives the `loss` by a step's config, where numbers of it are in the loss and may change."""

    def parts(self, model: "PreTrainedModel", step: int, device: str) -> list[AnyBatch]:
        """Lay out the micro-batches of a step.

        Args:
            model: What a `gather` asks, as of a reference point.
            step: Counted from 0.
            device: Where they go, as torch names it.

        Returns:
            The micro-batches, complete.

        """
        parts = [batch.to(device) for batch in self.batches.micro_batches(step)]
        return self.gather(model, parts, step) if self.gather else parts
