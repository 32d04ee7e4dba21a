"""Probe: how often the policy solves each problem, and the samples that say so."""

from posttrain.stage.spec import ArtifactKind, Port, Task
from tasks.probe.config import ProbeConfig

TASK = Task(
    package="tasks.probe",
    config=ProbeConfig,
    inputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "policy to sample from"),
        "problems": Port(ArtifactKind.PROBLEMS, "problems to attempt"),
        "verifiers": Port(
            ArtifactKind.VERIFIERS, "what scores problems that name no verifier", optional=True
        ),
    },
    outputs={
        "samples": Port(ArtifactKind.COMPLETIONS, "every attempt with its verdict"),
        "solve_rates": Port(ArtifactKind.SOLVE_RATES, "solve rate and interval per problem"),
    },
    on_ray=True,
)
