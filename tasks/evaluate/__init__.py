"""Evaluate: what each policy can do, on the same held-out problems."""

from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task, refuse_unserved_ports
from tasks.evaluate.config import EvaluateConfig


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse an evaluation of nothing, and players without a checkpoint."""
    assert isinstance(stage.config, EvaluateConfig)
    refuse_unserved_ports(stage, "roles", stage.config.checkpoints_asked, {"players": "sft.policy"})
    if not any(port.startswith("policies.") for port in stage.inputs):
        raise UserError(
            f"{stage.name}.inputs.policies: no policy is connected; connect one by its name, such"
            " as policies.sft: sft.policy"
        )


TASK = Task(
    package="tasks.evaluate",
    config=EvaluateConfig,
    inputs={
        "problems": Port(ArtifactKind.PROBLEMS, "held-out problems"),
        "verifiers": Port(
            ArtifactKind.VERIFIERS, "what scores problems that name no verifier", optional=True
        ),
        "policies": Port(ArtifactKind.CHECKPOINT, "policies to compare, parents first", many=True),
        "reward_model": Port(
            ArtifactKind.REWARD_MODEL, "picks the best of n", optional=True, own_tokenizer=True
        ),
        "players": Port(
            ArtifactKind.CHECKPOINT,
            "policies that play further roles of an environment",
            many=True,
            optional=True,
        ),
    },
    outputs={
        "report": Port(ArtifactKind.REPORT, "estimates with intervals, changes, exhibits"),
        "completions": Port(ArtifactKind.COMPLETIONS, "every sample with its verdict"),
    },
    on_ray=True,
    refuse=_refuse,
)
