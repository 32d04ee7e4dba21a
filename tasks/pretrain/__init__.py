"""Pretrain: a base model from scratch, or more training of one on a declared mixture."""

from posttrain.stage.spec import ArtifactKind, Port, Task
from tasks.pretrain.config import PretrainConfig

TASK = Task(
    package="tasks.pretrain",
    config=PretrainConfig,
    inputs={
        "corpus": Port(ArtifactKind.COMPLETIONS, "raw problems with worked solutions, unverified"),
        "policy": Port(
            ArtifactKind.CHECKPOINT, "model to go on from (mid-training)", optional=True
        ),
    },
    outputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "base model and tokenizer"),
        "curve": Port(ArtifactKind.CURVE, "loss, gradient norm and learning rate per step"),
    },
    parallel=True,
)
