"""Reward: a Bradley-Terry reward model on pairs of verified and refuted samples."""

from posttrain.stage.spec import ArtifactKind, Port, Task
from tasks.reward.config import RewardConfig

TASK = Task(
    package="tasks.reward",
    config=RewardConfig,
    inputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "model that the reward model starts from"),
        "samples": Port(ArtifactKind.COMPLETIONS, "several judged samples per problem"),
    },
    outputs={
        "reward_model": Port(ArtifactKind.REWARD_MODEL, "scores completions of prompts"),
        "pairs": Port(ArtifactKind.PAIRS, "chosen and rejected samples, with their split"),
        "curve": Port(ArtifactKind.CURVE, "loss, accuracy and margin per step"),
        "report": Port(ArtifactKind.REPORT, "accuracy, AUROC and calibration on held-out pairs"),
    },
    parallel=True,
)
