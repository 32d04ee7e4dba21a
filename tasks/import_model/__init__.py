"""Import model: a Hugging Face checkpoint as the policy that a recipe starts from."""

import json

from posttrain.stage.hashing import sha256_of, sorted_json
from posttrain.stage.spec import ArtifactKind, Port, Stage, Task, Vocabulary
from tasks.import_model.config import ImportModelConfig


def _vocabulary(stage: Stage) -> Vocabulary | None:
    """Read that of a local model; one on the hub is not asked for before the stage runs."""
    files = stage.inputs.get("files.model")
    if files is None or files.path is None:
        return None
    try:
        text = (files.path / "tokenizer.json").read_text(encoding="utf-8")
        vocabulary = json.loads(text)["model"]["vocab"]
    except (OSError, ValueError, LookupError, TypeError):
        # Another kind of tokenizer, or no model at all: the stage finds out and says what.
        return None
    size = len(vocabulary)
    return Vocabulary(size, size, sha256_of(sorted_json(vocabulary)))


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
    vocabulary=_vocabulary,
)
