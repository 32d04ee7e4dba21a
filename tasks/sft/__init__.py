"""SFT: teach a policy to answer like verified traces."""

from posttrain.data.soft_targets import SOFT_TARGETS
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task
from tasks.sft.config import SftConfig


def _refuse(stage: Stage, dag: Dag) -> None:  # noqa: ARG001 - see `Task.refuse`
    """Refuse a loss that goes by a teacher without its targets, and targets that no loss reads."""
    assert isinstance(stage.config, SftConfig)
    loss, wired = stage.config.loss, stage.inputs.get("targets")
    if "targets" in loss.NEEDS and wired is None:
        raise UserError(
            f"{stage.name}.loss: {loss.kind} goes by what a teacher says of the rows, and nothing"
            f" says it; add a stage with `task: tasks.teach`, and connect it: {stage.name}:"
            " {inputs: {targets: teach.targets}}"
        )
    if "targets" not in loss.NEEDS and wired is not None:
        raise UserError(
            f"{stage.name}.inputs.targets: {wired} is connected, and the loss {loss.kind} does not"
            " read it; set loss to soft_targets, or write targets: null"
        )


TASK = Task(
    package="tasks.sft",
    config=SftConfig,
    inputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "model to start from"),
        "traces": Port(ArtifactKind.COMPLETIONS, "verified worked solutions"),
        "heldout": Port(
            ArtifactKind.COMPLETIONS, "rows that are measured and never learned", optional=True
        ),
        "targets": Port(
            SOFT_TARGETS,
            "what a teacher says of the tokens of the traces, for a loss that goes by it",
            optional=True,
        ),
    },
    outputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "fine-tuned model and its tokenizer"),
        "curve": Port(ArtifactKind.CURVE, "loss, gradient norm and learning rate per step"),
    },
    parallel=True,
    refuse=_refuse,
)
