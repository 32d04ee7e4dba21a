"""Evaluate: what each policy can do, on the same held-out problems."""

from posttrain.stage.spec import ArtifactKind, Port, Task
from tasks.evaluate.config import EvaluateConfig

TASK = Task(
    package="tasks.evaluate",
    config=EvaluateConfig,
    inputs={
        "problems": Port(ArtifactKind.PROBLEMS, "held-out problems"),
        "policies": Port(ArtifactKind.CHECKPOINT, "policies to compare, parents first", many=True),
        "reward_model": Port(
            ArtifactKind.REWARD_MODEL, "picks the best of n", optional=True, own_tokenizer=True
        ),
    },
    outputs={
        "report": Port(ArtifactKind.REPORT, "estimates with intervals, changes, exhibits"),
        "completions": Port(ArtifactKind.COMPLETIONS, "every sample with its verdict"),
    },
    on_ray=True,
)
