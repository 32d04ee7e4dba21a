"""Reward: a Bradley-Terry reward model on pairs of verified and refuted samples."""

from posttrain.stage.spec import ArtifactType, Port, Task
from tasks.reward.config import RewardConfig

TASK = Task(
    package="tasks.reward",
    config=RewardConfig,
    inputs={
        "policy": Port(ArtifactType.CHECKPOINT, "model that the reward model starts from"),
        "samples": Port(ArtifactType.COMPLETIONS, "several judged samples per problem"),
    },
    outputs={
        "reward_model": Port(ArtifactType.REWARD_MODEL, "scores completions of prompts"),
        "pairs": Port(ArtifactType.PAIRS, "chosen and rejected samples, with their split"),
        "curve": Port(ArtifactType.CURVE, "loss, accuracy and margin per step"),
        "report": Port(ArtifactType.REPORT, "accuracy, AUROC and calibration on held-out pairs"),
    },
    parallel=True,
)
