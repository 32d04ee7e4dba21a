"""The parameters that every supervised training stage shares."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.data.swing import SwingConfig
from posttrain.learning.models.attention import Attention
from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.training.metrics import HELDOUT, ROUTED, STEP, check_metric
from posttrain.learning.training.stopping import StoppingConfig
from posttrain.stage.config import UNKEYED, StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.schedule import Schedulable, at, schedules_in

if TYPE_CHECKING:
    from posttrain.data.batching import Mixture


_LEAST_LOSS = 1e-3
"""In nats a token; rows of a smaller loss are as easy."""


class LoraConfig(StageConfig):
    """Low-rank adapters (arXiv 2106.09685) in place of training every weight."""

    MECHANICS = frozenset({"save"})
    PACKAGES = frozenset({"peft"})
    rank: int = Field(8, ge=1)
    """Rank of each update."""
    alpha: int = Field(16, ge=1)
    """The update is scaled by alpha / rank."""
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Dropout before the adapters."""
    targets: tuple[str, ...] = ()
    """Ends of the names of the linear layers to adapt; empty takes all but the output head."""
    save: Literal["merged", "adapter"] = "merged"
    """`merged` writes a plain checkpoint, `adapter` the adapter alone with its base's digest."""


class EarlyStopConfig(StoppingConfig):
    """Stop once the loss on held-out rows no longer falls."""

    every: int = Field(50, ge=1)
    """Steps between measurements of the held-out loss."""
    heldout_fraction: float = Field(0.05, gt=0.0, lt=1.0)
    """Share of the rows (pairs) that is measured and never trained on."""


class LearnerConfig(StageConfig):
    """How the gradient is computed and which weights it moves; every default changes nothing."""

    MECHANICS = frozenset({"precision", "attention", "packing", "activation_checkpointing"})
    precision: Literal["fp32", "bf16"] = "fp32"
    """`bf16` computes in bfloat16 with weights, optimizer, logits and loss in float32."""
    attention: Attention | None = None
    """Kernel of the attention; null leaves the choice to transformers."""
    packing: bool = False
    """Lay rows end to end without padding; no row sees another."""
    activation_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, same gradient."""
    lora: LoraConfig | None = None
    """Train low-rank adapters and leave the weights as they are."""
    ema_decay: float | None = Field(default=None, gt=0.0, lt=1.0)
    """Save an exponential moving average of the weights with this decay per step."""
    router_loss: float | None = Field(default=None, gt=0.0)
    """Coefficient of the loss that keeps a mixture of experts' router even, over all tokens of a
    step; null leaves it out, as transformers does. Checkpoints state the one that they were made
    with as `router_aux_loss_coef`; those that balance by a bias have none."""
    early_stop: EarlyStopConfig | None = None
    """Stop by the loss on held-out rows."""

    @property
    def measured(self) -> dict[str, str]:
        """What is measured at every step because of these settings: a sentence by name."""
        return {} if self.router_loss is None else dict(ROUTED)


class PaceConfig(Schedulable):
    """How much of the table is trained on: a curriculum that may swing."""

    share: float = Field(default=1.0, gt=0.0, le=1.0)
    """Share of the rows that a pass takes; by the step at which the pass begins."""
    swing: SwingConfig | None = None
    """A share that goes by the number of the pass, in place of `share`."""
    by: Literal["order", "loss"] = "order"
    """Which rows these are: the first of the table, or drawn, each in proportion to 1 / its loss by
    the model that training begins from."""

    def share_at(self, step: int, number: int) -> float:
        """Return the share of a pass.

        Args:
            step: At which it begins, from 0.
            number: Its own, from 0.

        Returns:
            Above 0, and at most 1.

        """
        return self.swing.share_of(number) if self.swing else float(at(self, step, {}).share)


class TrainingConfig(StageConfig):
    """How long, how fast and in what portions to train."""

    MECHANICS = frozenset({"micro_batch_tokens", "checkpoint_every"})
    STAGE: ClassVar[str] = ""
    """Name before those of the metrics, `sft` of `sft/loss`; without one, none are declared."""

    epochs: float = Field(1.0, gt=0.0)
    """Passes over the data; a fraction ends within a pass."""
    steps: int | None = Field(None, ge=1)
    """Optimizer steps, as many passes as they take; given, it replaces `epochs`."""
    order: Literal["shuffled", "as_given"] = "shuffled"
    """`as_given` takes rows (pairs) in the table's order in every pass: curate.order, for one."""
    pace: PaceConfig = PaceConfig()
    """Share of the table that a pass takes, and which; a schedule makes a curriculum of
    curate.order."""
    batch_tokens: int = Field(2048, ge=1)
    """Tokens of one optimizer step, padding counted; a longer row still makes a batch."""
    micro_batch_tokens: int | None = Field(None, ge=1)
    """Tokens of one forward pass; a smaller part of the batch saves memory, same gradient."""
    optimization: OptimizationConfig = OptimizationConfig()
    """Optimizer, learning rate and its schedule."""
    max_length: int = Field(512, ge=8)
    """Longest prompt and completion in tokens; longer rows (pairs) are left out and counted."""
    most_left_out: float = Field(0.5, ge=0.0, le=1.0)
    """Largest share of the rows (pairs) that may be left out as too long; beyond it the stage
    refuses."""
    checkpoint_every: Annotated[int, UNKEYED] = Field(100, ge=0)
    """Steps between resumable checkpoints; 0 writes none."""
    learner: LearnerConfig = LearnerConfig()
    """Precision, packing, adapters, averaging and early stop."""

    @model_validator(mode="after")
    def _micro_batch_fits(self) -> Self:
        if self.micro_batch_tokens is not None and self.micro_batch_tokens > self.batch_tokens:
            raise ValueError(
                f"micro_batch_tokens {self.micro_batch_tokens} exceeds batch_tokens "
                f"{self.batch_tokens}; make it smaller or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _metrics_are_there(self) -> Self:
        self.refuse_unmeasured()
        if any(number.metric for _, number in schedules_in(self.pace)):
            raise ValueError(
                "pace.share follows a metric, but which rows a step takes is planned before the"
                " first one; let it go by the step, with over"
            )
        return self

    def refuse_unmeasured(self) -> None:
        """Refuse, by ValueError, schedules that follow what no step of this config measures."""
        followed = {path: number.metric for path, number in schedules_in(self) if number.metric}
        for path, metric in followed.items() if self.STAGE else ():
            unmeasured = metric in {f"{self.STAGE}/{name}" for name in HELDOUT}
            why = ", as learner.early_stop is not set" if unmeasured else None
            known = [f"{self.STAGE}/{name}" for name in self.metrics()]
            check_metric(metric, known, where=path, why=why)

    def refuse_leaving_out(self, lengths: Sequence[int], *, what: str, where: str) -> None:
        """Refuse a `max_length` that leaves out too much.

        Args:
            lengths: Tokens of each row or pair.
            what: What they are, for the message: rows or pairs.
            where: Name of the stage.

        Raises:
            UserError: More than `most_left_out` of them are longer.

        """
        share = sum(length > self.max_length for length in lengths) / max(1, len(lengths))
        if share > self.most_left_out:
            raise UserError(
                f"{where}: {share:.0%} of the {what} are longer than max_length {self.max_length},"
                f" the longest has {max(lengths)} tokens; raise {where}.max_length, or"
                f" {where}.most_left_out to learn from the short ones alone"
            )

    def metrics(self) -> dict[str, str]:
        """Describe what the steps of this config measure.

        Returns:
            A sentence by name; in the curve a name comes after that of the stage, `sft/loss`.

        """
        return {**STEP, **self.learner.measured, **(HELDOUT if self.learner.early_stop else {})}

    def plan(
        self,
        lengths: Sequence[int],
        *,
        seed: int,
        mixture: "Mixture | None" = None,
        losses: Sequence[float] | None = None,
    ) -> list[list[int]]:
        """Plan the rows of every optimizer step.

        Args:
            lengths: Tokens of each row.
            seed: Shuffles the rows, unless they come as given.
            mixture: Groups of rows and their shares.
            losses: Of each row, by the model that training begins from; None where nobody knows.

        Returns:
            Indices of rows, step by step.

        Raises:
            UserError: Rows are drawn by their loss, and it is not known.

        """
        from posttrain.data.batching import Paced, plan_steps

        ease = None
        if self.pace.by == "loss":
            if losses is None:
                raise UserError(
                    f"{self.STAGE or 'training'}.pace.by loss draws rows by what a model that has"
                    " learned already says of them, which is asked in sft alone; set it to order"
                )
            # A row that is certain already would take all draws.
            ease = [1 / max(loss, _LEAST_LOSS) for loss in losses]
        return plan_steps(
            lengths,
            batch_tokens=self.batch_tokens,
            epochs=self.epochs,
            num_steps=self.steps,
            seed=seed if self.order == "shuffled" else None,
            taken=mixture
            if self.pace == PaceConfig()
            else Paced(self.pace.share_at, ease=ease, seed=seed),
            packed=self.learner.packing,
        )
