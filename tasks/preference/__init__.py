"""Preference: optimize a policy on pairs of better and worse completions, offline or in rounds."""

from posttrain.stage.spec import ArtifactKind, Port, Task
from tasks.preference.config import PreferenceConfig

TASK = Task(
    package="tasks.preference",
    config=PreferenceConfig,
    inputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "model to start from, and the reference"),
        "samples": Port(
            ArtifactKind.COMPLETIONS, "several judged samples per problem", optional=True
        ),
        "pairs": Port(ArtifactKind.PAIRS, "ready pairs, in place of samples", optional=True),
        "problems": Port(ArtifactKind.PROBLEMS, "what to sample in rounds", optional=True),
    },
    outputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "optimized model and its tokenizer"),
        "pairs": Port(ArtifactKind.PAIRS, "all pairs, with their split"),
        "curve": Port(ArtifactKind.CURVE, "loss, accuracy and margin per step"),
        "report": Port(ArtifactKind.REPORT, "held-out accuracy and margin, divergence, algorithm"),
    },
    parallel=True,
)
