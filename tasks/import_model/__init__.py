"""Import model: a Hugging Face checkpoint as the policy that a recipe starts from."""

import json

from posttrain.learning.models.architectures import (
    model_type_of,
    refuse_headless,
    refuse_packed,
    refuse_undrawn,
    refuse_untrained,
)
from posttrain.learning.models.subnetwork_file import FILE as SUBNETWORK
from posttrain.learning.models.subnetwork_file import refuse_shared_subnetwork
from posttrain.stage.hashing import sha256_of, sorted_json
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task, Vocabulary
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


def _refuse(stage: Stage, dag: Dag) -> None:
    """Refuse a local model of an architecture that would not train, draw or pack where it must."""
    files = stage.inputs.get("files.model")
    if files is None or files.path is None:
        return
    model_type = model_type_of(files.path)
    refuse_untrained(model_type, where=f"{stage.name}: {files.path}")
    having = {stage.name}
    for name in dag.order():
        sources = {ref.stage for port, ref in dag.stages[name].inputs.items() if _is_policy(port)}
        if having.isdisjoint(sources):
            continue
        having.add(name)
        engine = getattr(dag.stages[name].config, "engine", None)
        if engine is not None and engine.SHARES_PROCESS:
            refuse_undrawn(model_type, where=name)
        learner = getattr(dag.stages[name].config, "learner", None)
        if learner is not None and learner.packing:
            refuse_packed(model_type, where=name)
        if getattr(dag.stages[name].config, "parameterization", None) == "head":
            refuse_headless(model_type, where=name)
        if stage.name in sources and (files.path / SUBNETWORK).is_file():
            refuse_shared_subnetwork(dag.stages[name].resources.processes, where=name)


def _is_policy(port: str) -> bool:
    """True of inputs that are drawn from, and passed on when they have learned."""
    return port.partition(".")[0] in ("policy", "policies")


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
    refuse=_refuse,
    vocabulary=_vocabulary,
)
