"""Import reward model: a classifier with one label from elsewhere, to pick the best of n."""

from posttrain.stage.spec import ArtifactType, Port, Task
from tasks.import_reward_model.config import ImportRewardModelConfig

TASK = Task(
    package="tasks.import_reward_model",
    config=ImportRewardModelConfig,
    inputs={
        "files": Port(ArtifactType.SOURCE, "the model directory, if it is local", many=True),
    },
    outputs={
        "reward_model": Port(ArtifactType.REWARD_MODEL, "the classifier and its own tokenizer"),
        "report": Port(ArtifactType.REPORT, "where it is from and its format"),
    },
)
