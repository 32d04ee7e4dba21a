"""Preference: optimize a policy on pairs of better and worse completions, offline or in rounds."""

from posttrain.data.pair_builders.ports import PAIR_PORTS, refuse_pair_ports
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task
from tasks.preference.config import PreferenceConfig


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse two origins of pairs, or none, and rounds that cannot sample."""
    config, name = stage.config, stage.name
    assert isinstance(config, PreferenceConfig)
    refuse_pair_ports(stage, config.pairs.builder)
    if config.rounds and "problems" not in stage.inputs:
        raise UserError(
            f"{name}.rounds: rounds sample problems, and none are connected; connect"
            f" {name}.inputs.problems, or set rounds to 0"
        )
    earlier = [port for port in stage.inputs if port.startswith("earlier_pairs.")]
    if config.rounds and earlier:
        raise UserError(
            f"{name}.inputs.{earlier[0]}: rounds learn from what they draw; set rounds to 0, or"
            f" write {name}.inputs.earlier_pairs: null"
        )
    if config.rounds and stage.resources.processes > 1:
        raise UserError(
            f"{name}.rounds: rounds sample in one process; set rounds to 0, or leave"
            f" {name}.resources.processes out"
        )


TASK = Task(
    package="tasks.preference",
    config=PreferenceConfig,
    inputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "model to start from, and the reference"),
        **PAIR_PORTS,
        "problems": Port(ArtifactKind.PROBLEMS, "what to sample in rounds", optional=True),
        "verifiers": Port(
            ArtifactKind.VERIFIERS, "what scores problems that name no verifier", optional=True
        ),
    },
    outputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "optimized model and its tokenizer"),
        "pairs": Port(ArtifactKind.PAIRS, "all pairs, with their split"),
        "curve": Port(ArtifactKind.CURVE, "loss, accuracy and margin per step"),
        "report": Port(ArtifactKind.REPORT, "held-out accuracy and margin, divergence, algorithm"),
    },
    parallel=True,
    refuse=_refuse,
)
