"""Evolve: new problems around those that a policy failed; those it solves sometimes stay."""

from posttrain.stage.spec import ArtifactKind, Port, Task
from tasks.evolve.config import EvolveConfig

TASK = Task(
    package="tasks.evolve",
    config=EvolveConfig,
    inputs={
        "problems": Port(ArtifactKind.PROBLEMS, "problems that the policy attempted"),
        "heldout": Port(ArtifactKind.PROBLEMS, "evaluation problems, which must not leak"),
        "solve_rates": Port(ArtifactKind.SOLVE_RATES, "how often it solved them, by a probe"),
    },
    outputs={
        "problems": Port(ArtifactKind.PROBLEMS, "problems to practice on next"),
        "report": Port(ArtifactKind.REPORT, "how many failed, stay and are new, by source"),
    },
)
