"""Select: the few problems that an earlier run of RL says are worth training on."""

from posttrain.stage.spec import ArtifactKind, Port, Task
from tasks.select.config import SelectConfig

TASK = Task(
    package="tasks.select",
    config=SelectConfig,
    inputs={
        "problems": Port(ArtifactKind.PROBLEMS, "problems to choose from"),
        "rollouts": Port(ArtifactKind.ROLLOUTS, "what an earlier run of RL drew for them"),
    },
    outputs={
        "problems": Port(ArtifactKind.PROBLEMS, "the chosen ones, the highest score first"),
        "report": Port(ArtifactKind.REPORT, "the chosen ones with their scores, and counts"),
    },
)
