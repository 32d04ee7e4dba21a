"""The loss that keeps a mixture of experts' router even, beside the loss of a step.

It is taken over the tokens of an optimizer step, of each row up to the last one that bears loss
(prompts counted, padding not), layer by layer (Switch Transformers, arXiv 2101.03961, section 2.2),
and averaged over the layers. That makes it one number whatever micro-batches the step is cut into;
a step of several is read once more, without gradient, to know which experts its tokens go to.
transformers' own function takes all layers together, so that one layer's favor makes up for
another's, and each micro-batch for itself.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from posttrain.data.batching import AnyBatch
from posttrain.data.routed_rows import RoutedRows
from posttrain.learning.maths.load_balance import balance_share, expert_counts
from posttrain.learning.models.backbone import backbone
from posttrain.learning.models.logprobs import hidden_states
from posttrain.learning.training.supervised_objective import Loss, SupervisedObjective
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_BIASES = ("correction_bias", "expert_bias")
"""Ends of the names of what chooses experts beside a router's logits."""


@dataclass
class RouterLoss:
    """Adds ``coefficient x balance`` to the loss of each micro-batch of a step."""

    coefficient: float
    top_k: int
    counts: list[Tensor] = field(default_factory=list, init=False)
    """Tokens of the step by expert, layer by layer."""
    num_tokens: int = field(default=0, init=False)
    """Of the step."""

    @classmethod
    def of(cls, model: "PreTrainedModel", coefficient: float) -> "RouterLoss":
        """Make the loss of a model's routers.

        Args:
            model: A mixture of experts.
            coefficient: Of the loss.

        Returns:
            The loss, before its first step.

        Raises:
            UserError: It has no router that was trained with such a loss, or one whose choice is
                not that of its logits alone.

        """
        config = model.config.get_text_config()
        recorded = getattr(backbone(model), "_can_record_outputs", None) or {}
        if "router_logits" not in recorded or not hasattr(config, "router_aux_loss_coef"):
            raise UserError(
                f"learner.router_loss: the architecture '{config.model_type}' has no router of"
                " experts that a loss keeps even; leave it out"
            )
        held = [name for name, _ in model.named_parameters()]
        held += [name for name, _ in model.named_buffers()]
        if any(name.endswith(_BIASES) for name in held):
            raise UserError(
                f"learner.router_loss: the architecture '{config.model_type}' balances its experts"
                " by a bias of the router, which no loss does; leave it out"
            )
        return cls(coefficient, int(config.num_experts_per_tok))

    @contextmanager
    def watching(self, model: "PreTrainedModel") -> Iterator[list[tuple[Tensor, ...]]]:
        """Keep what the routers say in passes through a model.

        Args:
            model: Whose passes.

        Yields:
            A list that gets the logits ``[B x T, E]`` of all layers for each pass.

        """
        seen: list[tuple[Tensor, ...]] = []

        def ask(_module: Any, given: tuple[Any, ...], options: dict[str, Any]) -> Any:
            return given, {**options, "output_router_logits": True}

        def keep(_module: Any, _given: tuple[Any, ...], output: Any) -> None:
            seen.append(output.router_logits)

        module = backbone(model)
        handles = (
            module.register_forward_pre_hook(ask, with_kwargs=True),
            module.register_forward_hook(keep),
        )
        try:
            yield seen
        finally:
            for handle in handles:
                handle.remove()

    def begin(self, model: "PreTrainedModel", parts: Sequence[RoutedRows]) -> None:
        """Learn which experts a step's tokens go to, before the first of its micro-batches.

        Args:
            model: As it is at this step.
            parts: All micro-batches; one alone is counted as it is learned.

        """
        self.counts, self.num_tokens = [], 0
        if len(parts) == 1:
            return
        with torch.no_grad(), self.watching(model) as seen:
            for part in parts:
                hidden_states(model, part.input_ids_BT, position_ids_BT=part.position_ids_BT)
        for part, routed in zip(parts, seen, strict=True):
            self._count(routed, part)

    def term(self, routed: tuple[Tensor, ...], part: RoutedRows) -> Tensor:
        """Compute a micro-batch's share of the step's balance, without the coefficient.

        Args:
            routed: Logits of all layers.
            part: The tokens that they are of.

        Returns:
            A scalar with gradient.

        """
        if not self.counts:
            self._count(routed, part)
        real_N = part.real_BT.flatten()
        shares = [
            balance_share(logits_NE[real_N], counts_E, num_tokens=self.num_tokens)
            for logits_NE, counts_E in zip(routed, self.counts, strict=True)
        ]
        return torch.stack(shares).mean()

    def _count(self, routed: tuple[Tensor, ...], part: RoutedRows) -> None:
        real_N = part.real_BT.flatten()
        found = [expert_counts(logits_NE[real_N], top_k=self.top_k) for logits_NE in routed]
        before = self.counts or [torch.zeros_like(counts_E) for counts_E in found]
        self.counts = [one + other for one, other in zip(before, found, strict=True)]
        self.num_tokens += int(real_N.sum())


def balanced(
    objective: SupervisedObjective[AnyBatch], model: "PreTrainedModel", coefficient: float
) -> SupervisedObjective[AnyBatch]:
    """Add the loss of the routers to a supervised objective.

    Args:
        objective: What is minimized beside it.
        model: A mixture of experts.
        coefficient: Of the loss.

    Returns:
        The objective; its metrics have ``router_loss``, without the coefficient.

    Raises:
        UserError: The model has no router to balance, or the stage does not train one.

    """
    rows_of = objective.routed
    if rows_of is None:
        raise UserError("learner.router_loss: this stage does not train it; leave it out")
    balance = RouterLoss.of(model, coefficient)

    def gather(model: "PreTrainedModel", parts: list[AnyBatch], step: int) -> list[AnyBatch]:
        complete = objective.gather(model, parts, step) if objective.gather else parts
        balance.begin(model, [rows_of(part) for part in complete])
        return complete

    def with_term(loss: Loss[AnyBatch]) -> Loss[AnyBatch]:
        def both(model: "PreTrainedModel", batch: AnyBatch, denominator: float) -> Any:
            if not torch.is_grad_enabled():
                return loss(model, batch, denominator)  # of rows that are held out
            with balance.watching(model) as seen:
                value, metrics = loss(model, batch, denominator)
            term = balance.term(seen[0], rows_of(batch))
            # A metric is a mean over the batch's units, and this is a share of the step's.
            told = term.detach() * denominator / batch.num_units
            return value + coefficient * term, {**metrics, "router_loss": told}

        return both

    at: Callable[[Any], Loss[AnyBatch]] | None = None
    if (loss_at := objective.loss_at) is not None:
        at = lambda changed: with_term(loss_at(changed))  # noqa: E731
    return replace(objective, loss=with_term(objective.loss), gather=gather, loss_at=at)
