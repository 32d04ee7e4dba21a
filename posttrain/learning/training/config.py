"""The parameters that every supervised training stage shares."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.algorithms.part import named_parts
from posttrain.learning.models.attention import Attention, beyond_cpu
from posttrain.learning.models.checkpoints_config import CheckpointsConfig
from posttrain.learning.models.optimization import OptimizationConfig, why_whole
from posttrain.learning.swing import SwingConfig
from posttrain.learning.training.alarms.base import Alarm
from posttrain.learning.training.alarms.registry import ALARMS
from posttrain.learning.training.metrics import HELDOUT, ROUTED, STEP, check_metric
from posttrain.learning.training.stopping import StoppingConfig
from posttrain.stage.config import UNKEYED, Capability, StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.schedule import Schedulable, at, schedules_in
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from posttrain.data.batching import Mixture


_LEAST_LOSS = 1e-3
"""In nats a token; rows of a smaller loss are as easy."""
_OF_RL = ("entropy_collapse", "length_shift", "flat_reward", "truncation", "logprob_gap")

AlarmsConfig = Annotated[dict[str, Annotated[Alarm, InSlot(ALARMS)]], named_parts(ALARMS)]
"""The type of a field that holds alarms by name; a kind of that name needs no other word."""


def usual_alarms() -> dict[str, Alarm]:
    """Return those of RL where a recipe says nothing: all warn."""
    return {kind: ALARMS.parts[kind](kind=kind) for kind in _OF_RL}


def refuse_blind(alarms: Mapping[str, Alarm], measured: Iterable[str], *, where: str) -> None:
    """Refuse an alarm that watches what no step of a stage measures.

    Args:
        alarms: By name.
        measured: Names of metrics, without that of the stage.
        where: Field of the recipe.

    Raises:
        ValueError: One does; the nearest metric is named.

    """
    names = list(measured)
    for name, alarm in alarms.items():
        check_metric(alarm.METRIC, names, where=f"{where}.{name}")


class LoraConfig(StageConfig):
    """Low-rank adapters (LoRA, arXiv 2106.09685) in place of training every weight."""

    MECHANICS = frozenset({"save"})
    PACKAGES = frozenset({"peft"})
    rank: int = Field(8, ge=1)
    """Rank of each update."""
    alpha: int = Field(16, ge=1)
    """The update is scaled by alpha / rank."""
    dora: bool = False
    """Also train the length of each row of a weight, and let the update turn it (DoRA, arXiv
    2402.09353); each pass then computes the adapted weights anew."""
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

    MECHANICS = frozenset(
        {
            "precision",
            "attention",
            "packing",
            "activation_checkpointing",
            "context_parallel",
            "offload",
            "checkpoints",
        }
    )
    precision: Literal["fp32", "bf16"] = "fp32"
    """`bf16` computes in bfloat16 with weights, optimizer, logits and loss in float32."""
    weights: Literal["fp32", "bf16", "nf4"] = "fp32"
    """How the weights that forward passes read are held: in 4, 2 or about half a byte a parameter.
    Where all are trained, `bf16` has gradients in 2 bytes too, and no copy in float32 (see
    `optimization.rounding`). Under lora it is the frozen ones, and a pass computes in `precision`;
    `nf4` (QLoRA, arXiv 2305.14314) holds the linear layers in 4 bits, head and embeddings as they
    are stored."""
    attention: Attention | None = None
    """Kernel of the attention; null leaves the choice to transformers."""
    packing: bool = False
    """Lay rows end to end without padding; no row sees another."""
    activation_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, same gradient."""
    context_parallel: bool = False
    """Several processes compute the tokens of each micro-batch together, for rows too long for one;
    otherwise each takes micro-batches of its own."""
    offload: bool = False
    """Keep each process's shards of weights, gradients and optimizer in host memory, but for the
    layer that computes; of several processes alone."""
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
    checkpoints: Annotated[CheckpointsConfig, UNKEYED] = CheckpointsConfig()
    """How many resumable checkpoints stay, and whether steps wait for them."""

    @property
    def holds_base(self) -> bool:
        """Whether adapters are trained on frozen weights that are held narrow."""
        return self.lora is not None and self.weights != "fp32"

    @property
    def trains_narrow(self) -> bool:
        """Whether the weights that are trained are held in bfloat16."""
        return self.weights == "bf16" and self.lora is None

    @property
    def reads_by_rows(self) -> bool:
        """Whether some rows of a weight are enough for a process that has only these.

        Weights of 4 bits are whole in each, and lengths of rows (DoRA) begin with those that are
        there.
        """
        return self.weights != "nf4" and not (self.lora is not None and self.lora.dora)

    def packages(self) -> frozenset[str]:
        """What holds weights in 4 bits; see `StageConfig.packages`."""
        return frozenset({"bitsandbytes"} if self.weights == "nf4" else ())

    def beyond_processes(self, processes: int) -> str | None:
        """Say what one process has nothing of; see `StageConfig.beyond_processes`."""
        asked = {
            "offload": (self.offload, "keeps the shards of several processes in host memory"),
            "context_parallel": (
                self.context_parallel,
                "shares the tokens of a row out among several processes",
            ),
        }
        for name, (is_set, does) in asked.items():
            if is_set and processes == 1:
                return (
                    f"learner.{name} {does}, and this stage has one; set resources.processes, or"
                    f" leave learner.{name} out"
                )
        return None

    def beyond_device(self, capability: Capability) -> str | None:
        """Say that an attention wants a GPU; see `StageConfig.beyond_device`."""
        return beyond_cpu(self.attention, capability)

    @model_validator(mode="after")
    def _frozen_weights_alone_are_quantized(self) -> Self:
        if self.weights == "nf4" and self.lora is None:
            raise ValueError(
                "learner.weights nf4 holds weights that are not trained, and without learner.lora"
                " all are; set learner.lora, such as to {rank: 16}, or weights to fp32"
            )
        return self

    @model_validator(mode="after")
    def _router_reads_whole_rows(self) -> Self:
        if self.context_parallel and self.router_loss is not None:
            raise ValueError(
                "context_parallel gives a process some tokens of a row, and router_loss counts the"
                " experts of all; leave one of the two out"
            )
        return self


def refuse_idle_rounding(learner: LearnerConfig, rounding: str | None) -> None:
    """Refuse a rounding of weights that are not rounded.

    Args:
        learner: Says how weights are held, and which are trained.
        rounding: How they are rounded, if it is said.

    Raises:
        ValueError: What is trained is float32.

    """
    if rounding is None:
        return
    if learner.weights == "fp32" or learner.lora is not None:
        why = "trains adapters in float32" if learner.lora else "holds weights in float32"
        raise ValueError(
            f"optimization.rounding {rounding} is for trained weights in bfloat16, and"
            f" learner {why}; leave rounding out, or set learner.weights to bf16 without lora"
        )


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

    MECHANICS = frozenset({"micro_batch_tokens", "checkpoint_every", "alarms"})
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
    # What is learned is the same: an alarm ends a run that has no result yet, or says something.
    alarms: Annotated[AlarmsConfig, UNKEYED] = {}
    """What is watched from step to step, and warns or stops, such as `loss_rise`."""
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
    def _rounding_has_a_use(self) -> Self:
        refuse_idle_rounding(self.learner, self.optimization.rounding)
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

    def beyond_processes(self, processes: int) -> str | None:
        """Say what of the steps needs whole weights; see `StageConfig.beyond_processes`."""
        if processes == 1:
            return None
        return why_whole(self.optimization, narrow=self.learner.trains_narrow)

    def refuse_unmeasured(self) -> None:
        """Refuse, by ValueError, what follows or watches what no step of this config measures."""
        refuse_blind(self.alarms, self.metrics(), where="alarms")
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
        routed = ROUTED if self.learner.router_loss is not None else {}
        return {**STEP, **routed, **(HELDOUT if self.learner.early_stop else {})}

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
