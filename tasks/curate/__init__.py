"""Curate: duplicates, leaks and unfit rows out, with the reason; the rest from easy to hard."""

from posttrain.stage.spec import ArtifactKind, Port, Task
from tasks.curate.config import CurateConfig

TASK = Task(
    package="tasks.curate",
    config=CurateConfig,
    inputs={
        "problems": Port(ArtifactKind.PROBLEMS, "problems to train on, as they came"),
        "heldout": Port(ArtifactKind.PROBLEMS, "evaluation problems, which must not leak"),
        "traces": Port(ArtifactKind.COMPLETIONS, "worked solutions of the problems"),
    },
    outputs={
        "problems": Port(ArtifactKind.PROBLEMS, "problems that stay, in training order"),
        "traces": Port(ArtifactKind.COMPLETIONS, "verified solutions of those, in training order"),
        "dropped_problems": Port(ArtifactKind.DROPPED, "every other problem, with the reason"),
        "dropped_traces": Port(ArtifactKind.DROPPED, "every other solution, with the reason"),
        "report": Port(ArtifactKind.REPORT, "counts per reason, source and difficulty bucket"),
    },
    on_ray=True,
)
