"""Import reward model: a classifier with one label from elsewhere, to pick the best of n."""

from posttrain.stage.spec import ArtifactKind, Port, Task
from tasks.import_reward_model.config import ImportRewardModelConfig

TASK = Task(
    package="tasks.import_reward_model",
    config=ImportRewardModelConfig,
    inputs={
        "files": Port(ArtifactKind.SOURCE, "the model directory, if it is local", many=True),
    },
    outputs={
        "reward_model": Port(ArtifactKind.REWARD_MODEL, "the classifier and its own tokenizer"),
        "report": Port(ArtifactKind.REPORT, "where it is from and its format"),
    },
)
