"""Reward: a Bradley-Terry reward model, or a preference model of both answers, on pairs."""

from posttrain.data.pair_builders.ports import PAIR_PORTS, refuse_pair_ports
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task
from tasks.reward.config import RewardConfig


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse inputs of which no pairs can be made."""
    # Here, as what a package imports is in the keys of its stages, and this decides no result.
    from posttrain.data.brought_files import refuse_lone_answers

    assert isinstance(stage.config, RewardConfig)
    refuse_pair_ports(stage, stage.config.builder)
    refuse_lone_answers(stage, dag)


TASK = Task(
    package="tasks.reward",
    config=RewardConfig,
    inputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "model that the reward model starts from"),
        **PAIR_PORTS,
    },
    outputs={
        "reward_model": Port(ArtifactKind.REWARD_MODEL, "scores completions of prompts"),
        "pairs": Port(ArtifactKind.PAIRS, "chosen and rejected samples, with their split"),
        "curve": Port(ArtifactKind.CURVE, "loss, accuracy and margin per step"),
        "report": Port(ArtifactKind.REPORT, "accuracy, AUROC and calibration on held-out pairs"),
    },
    parallel=True,
    refuse=_refuse,
)
