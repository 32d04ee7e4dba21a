"""Probe: how often the policy solves each problem, and the samples that say so."""

from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task, refuse_unserved_ports
from tasks.probe.config import ProbeConfig

_TRAINED = frozenset({ArtifactKind.CHECKPOINT, ArtifactKind.REWARD_MODEL})


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse to train on the last turns of episodes alone, or on their texts without what was read.

    A stage that learns from all that the assistant said takes them from the rows' contexts.
    """
    assert isinstance(stage.config, ProbeConfig)
    refuse_unserved_ports(stage, "roles", stage.config.checkpoints_asked, {"players": "sft.policy"})
    environment = stage.config.environment
    if not environment.authors():
        return
    for name, other in dag.stages.items():
        samples = any(
            ref.stage == stage.name and ref.output == "samples" for ref in other.inputs.values()
        )
        trains = any(port.type in _TRAINED for port in other.task.outputs.values())
        # What a stage that has no such parameter would do is the same.
        if samples and trains and getattr(other.config, "turns", "last") != "assistant":
            has = "turns" in type(other.config).model_fields
            raise UserError(
                f"{stage.name}.environment: {name} would train on the samples, whose texts leave"
                f" out what {environment.kind} said between the turns; "
                + (f"set {name}.turns to assistant, or " if has else "")
                + f"set {stage.name}.environment to single, or connect other samples or pairs to"
                f" {name}"
            )


TASK = Task(
    package="tasks.probe",
    config=ProbeConfig,
    inputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "policy to sample from"),
        "problems": Port(ArtifactKind.PROBLEMS, "problems to attempt"),
        "verifiers": Port(
            ArtifactKind.VERIFIERS, "what scores problems that name no verifier", optional=True
        ),
        "players": Port(
            ArtifactKind.CHECKPOINT,
            "policies that play further roles of an environment",
            many=True,
            optional=True,
        ),
    },
    outputs={
        "samples": Port(ArtifactKind.COMPLETIONS, "every attempt with its verdict"),
        "solve_rates": Port(ArtifactKind.SOLVE_RATES, "solve rate and interval per problem"),
    },
    on_ray=True,
    refuse=_refuse,
)
