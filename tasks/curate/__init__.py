"""Curate: duplicates, leaks and unfit rows out, with the reason; the rest from easy to hard."""

from posttrain.stage.spec import ArtifactType, Port, Task
from tasks.curate.config import CurateConfig

TASK = Task(
    package="tasks.curate",
    config=CurateConfig,
    inputs={
        "problems": Port(ArtifactType.PROBLEMS, "problems to train on, as they came"),
        "heldout": Port(ArtifactType.PROBLEMS, "evaluation problems, which must not leak"),
        "traces": Port(ArtifactType.COMPLETIONS, "worked solutions of the problems"),
    },
    outputs={
        "problems": Port(ArtifactType.PROBLEMS, "problems that stay, in training order"),
        "traces": Port(ArtifactType.COMPLETIONS, "verified solutions of those, in training order"),
        "dropped_problems": Port(ArtifactType.DROPPED, "every other problem, with the reason"),
        "dropped_traces": Port(ArtifactType.DROPPED, "every other solution, with the reason"),
        "report": Port(ArtifactType.REPORT, "counts per reason, source and difficulty bucket"),
    },
    on_ray=True,
)
