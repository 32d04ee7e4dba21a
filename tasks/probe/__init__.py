"""Probe: how often the policy solves each problem, and the samples that say so."""

from posttrain.stage.spec import ArtifactType, Port, Task
from tasks.probe.config import ProbeConfig

TASK = Task(
    package="tasks.probe",
    config=ProbeConfig,
    inputs={
        "policy": Port(ArtifactType.CHECKPOINT, "policy to sample from"),
        "problems": Port(ArtifactType.PROBLEMS, "problems to attempt"),
    },
    outputs={
        "samples": Port(ArtifactType.COMPLETIONS, "every attempt with its verdict"),
        "solve_rates": Port(ArtifactType.SOLVE_RATES, "solve rate and interval per problem"),
    },
    on_ray=True,
)
