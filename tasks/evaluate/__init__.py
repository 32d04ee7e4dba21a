"""Evaluate: what each policy can do, on the same held-out problems."""

from posttrain.stage.spec import ArtifactType, Port, Task
from tasks.evaluate.config import EvaluateConfig

TASK = Task(
    package="tasks.evaluate",
    config=EvaluateConfig,
    inputs={
        "problems": Port(ArtifactType.PROBLEMS, "held-out problems"),
        "policies": Port(ArtifactType.CHECKPOINT, "policies to compare, parents first", many=True),
        "reward_model": Port(
            ArtifactType.REWARD_MODEL, "picks the best of n", optional=True, own_tokenizer=True
        ),
    },
    outputs={
        "report": Port(ArtifactType.REPORT, "estimates with intervals, changes, exhibits"),
        "completions": Port(ArtifactType.COMPLETIONS, "every sample with its verdict"),
    },
    on_ray=True,
)
