"""Merge: one model of several that share architecture and tokenizer, without training."""

from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task
from tasks.merge.config import MergeConfig


def _refuse(stage: Stage, dag: Dag) -> None:  # noqa: ARG001 - see `Task.refuse`
    """Refuse a way of merging without its base, and a base that it does not look at."""
    assert isinstance(stage.config, MergeConfig)
    method = stage.config.method
    if "base" in method.NEEDS and "base" not in stage.inputs:
        raise UserError(
            f"{stage.name}.method: {method.kind} starts from what training added to a base, and"
            f" none is connected; connect base under {stage.name}.inputs, such as sft.policy"
        )
    if "base" in stage.inputs and "base" not in method.NEEDS:
        raise UserError(
            f"{stage.name}.inputs.base: {method.kind} does not look at a base; leave it out, or"
            " connect it among the policies"
        )


TASK = Task(
    package="tasks.merge",
    config=MergeConfig,
    inputs={
        "policies": Port(ArtifactKind.CHECKPOINT, "the models that become one", many=True),
        "base": Port(ArtifactKind.CHECKPOINT, "what they were trained from", optional=True),
    },
    outputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "the merged model and its tokenizer"),
        "report": Port(ArtifactKind.REPORT, "how far it is from each of them"),
    },
    refuse=_refuse,
)
