"""SFT: teach a policy to answer like verified traces."""

from posttrain.stage.spec import ArtifactType, Port, Task
from tasks.sft.config import SftConfig

TASK = Task(
    package="tasks.sft",
    config=SftConfig,
    inputs={
        "policy": Port(ArtifactType.CHECKPOINT, "model to start from"),
        "traces": Port(ArtifactType.COMPLETIONS, "verified worked solutions"),
    },
    outputs={
        "policy": Port(ArtifactType.CHECKPOINT, "fine-tuned model and its tokenizer"),
        "curve": Port(ArtifactType.CURVE, "loss, gradient norm and learning rate per step"),
    },
    parallel=True,
)
