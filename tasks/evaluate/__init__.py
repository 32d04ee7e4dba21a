"""Evaluate: what each policy can do, on the same held-out problems."""

from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task, refuse_unserved_ports
from tasks.evaluate.config import EvaluateConfig


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse an evaluation of nothing, players without a checkpoint, and a part that was seen."""
    assert isinstance(stage.config, EvaluateConfig)
    if stage.config.part == "unseen":
        _refuse_seen(stage, stage.config, dag)
    refuse_unserved_ports(stage, "roles", stage.config.checkpoints_asked, {"players": "sft.policy"})
    if not any(port.startswith("policies.") for port in stage.inputs):
        raise UserError(
            f"{stage.name}.inputs.policies: no policy is connected; connect one by its name, such"
            " as policies.sft: sft.policy"
        )


def _refuse_seen(stage: Stage, config: EvaluateConfig, dag: Dag) -> None:
    """Refuse unseen problems that another stage draws on; those that look for leaks may read them.

    Settings are chosen by whatever is drawn on problems, so that only an evaluation of `dev`, with
    the same share, leaves the rest unseen.
    """
    source = str(stage.inputs.get("problems"))
    for other in dag.stages.values():
        if other.name == stage.name or str(other.inputs.get("problems")) != source:
            continue
        told = other.config
        if isinstance(told, EvaluateConfig):
            if told.part == config.part and told.dev_share == config.dev_share:
                continue
            if told.part == "dev" and told.dev_share == config.dev_share:
                continue
        remedy = (
            "with the same dev_share set its part to dev"
            if isinstance(told, EvaluateConfig)
            else f"connect other problems to {other.name}"
        )
        raise UserError(
            f"{stage.name}.part: {other.name} draws on {source} too, so that none of them is"
            f" unseen; {remedy}, or evaluate all"
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
