"""SFT: teach a policy to answer like verified traces."""

from posttrain.stage.spec import ArtifactKind, Port, Task
from tasks.sft.config import SftConfig

TASK = Task(
    package="tasks.sft",
    config=SftConfig,
    inputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "model to start from"),
        "traces": Port(ArtifactKind.COMPLETIONS, "verified worked solutions"),
        "heldout": Port(
            ArtifactKind.COMPLETIONS, "rows that are measured and never learned", optional=True
        ),
    },
    outputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "fine-tuned model and its tokenizer"),
        "curve": Port(ArtifactKind.CURVE, "loss, gradient norm and learning rate per step"),
    },
    parallel=True,
)
