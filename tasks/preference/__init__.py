"""Preference: optimise a policy on pairs of better and worse completions, offline or in rounds."""

from posttrain.stage.spec import ArtifactType, Port, Task
from tasks.preference.config import PreferenceConfig

TASK = Task(
    package="tasks.preference",
    config=PreferenceConfig,
    inputs={
        "policy": Port(ArtifactType.CHECKPOINT, "model to start from, and the reference"),
        "samples": Port(
            ArtifactType.COMPLETIONS, "several judged samples per problem", optional=True
        ),
        "pairs": Port(ArtifactType.PAIRS, "ready pairs, in place of samples", optional=True),
        "problems": Port(ArtifactType.PROBLEMS, "what to sample in rounds", optional=True),
    },
    outputs={
        "policy": Port(ArtifactType.CHECKPOINT, "optimised model and its tokenizer"),
        "pairs": Port(ArtifactType.PAIRS, "all pairs, with their split"),
        "curve": Port(ArtifactType.CURVE, "loss, accuracy and margin per step"),
        "report": Port(ArtifactType.REPORT, "held-out accuracy and margin, divergence, algorithm"),
    },
    parallel=True,
)
