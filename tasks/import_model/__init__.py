"""Import model: a Hugging Face checkpoint as the policy that a recipe starts from."""

from posttrain.stage.spec import ArtifactKind, Port, Task
from tasks.import_model.config import ImportModelConfig

TASK = Task(
    package="tasks.import_model",
    config=ImportModelConfig,
    inputs={
        "files": Port(ArtifactKind.SOURCE, "the model directory, if it is local", many=True),
    },
    outputs={
        "policy": Port(ArtifactKind.CHECKPOINT, "the model and its tokenizer, checked"),
        "report": Port(ArtifactKind.REPORT, "where it is from, its format, its generation config"),
    },
)
