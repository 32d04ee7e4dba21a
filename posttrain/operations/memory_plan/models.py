"""Which architecture a stage works on: followed through the flow to where a model comes from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posttrain.learning.memory.shapes import ModelShapes, llama_shapes, read_shapes
from posttrain.stage.artifact_kinds import ArtifactKind
from posttrain.stage.errors import UserError
from posttrain.stage.spec import Dag, Reference, Stage

_MODELS = (ArtifactKind.CHECKPOINT, ArtifactKind.REWARD_MODEL)
_CONFIG = "config.json"


@dataclass
class ModelFinder:
    """Shapes of the models that stages read, each architecture built once."""

    dag: Dag
    output: Callable[[str], Path]
    """Absolute path of an output of the recipe."""
    given: Mapping[str, Path] = field(default_factory=dict)
    """Folders with the configs of models that the recipe names at the hub, by stage; that of all
    others by ""."""
    shared: list[str] = field(default_factory=list)
    """Stages whose models were counted by the config for all others."""
    _known: dict[Path, ModelShapes] = field(default_factory=dict)

    def models(self, stage: Stage) -> dict[str, ModelShapes]:
        """The models that a stage loads, by port.

        Args:
            stage: Of the flow.

        Raises:
            UserError: A config is needed and not there.

        """
        found = {
            port: self.of(reference)
            for port, reference in stage.inputs.items()
            if reference.type in _MODELS
        }
        if not found and "policy" in stage.task.outputs:
            found["policy"] = self._begun(stage)
        return found

    def of(self, reference: Reference) -> ModelShapes:
        """The model that a reference is to, made already or still to be made.

        Args:
            reference: To the output of a stage, or to a file.

        """
        if reference.path is not None:
            return self._read(reference.path)
        stage = self.dag.stages[str(reference.stage)]
        made = self.output(str(stage.outputs()[str(reference.output)]))
        if (made / _CONFIG).is_file():
            return self._read(made)
        upstream = [each for each in stage.inputs.values() if each.type in _MODELS]
        return self.of(upstream[0]) if upstream else self._begun(stage)

    def _begun(self, stage: Stage) -> ModelShapes:
        """A model that a stage begins with: a folder, a name at the hub, or sizes of its own."""
        config: Any = stage.config
        files = stage.inputs.get("files.model")
        if files is not None and files.path is not None:
            return self._read(files.path)
        if getattr(config, "name", None):
            return self._read(self._at_hub(stage))
        if not hasattr(config, "vocab_size"):
            raise UserError(
                f"{stage.name}: which model it makes is not known before it has run; run it, or"
                " leave --memory out"
            )
        context = config.max_length if isinstance(config.max_length, int) else 512
        return llama_shapes(
            vocabulary=config.vocab_size,
            hidden=config.hidden,
            layers=config.layers,
            heads=config.heads,
            context=context,
        )

    def _at_hub(self, stage: Stage) -> Path:
        """The folder with the config of the model that a stage names at the hub."""
        config: Any = stage.config
        if stage.name in self.given:
            return self.given[stage.name]
        if "" not in self.given:
            return _cached(stage.name, config.name, config.revision)
        if stage.name not in self.shared:
            self.shared.append(stage.name)
        return self.given[""]

    def _read(self, folder: Path) -> ModelShapes:
        if folder not in self._known:
            self._known[folder] = read_shapes(folder)
        return self._known[folder]


def split_models(
    models: Mapping[str, ModelShapes],
) -> tuple[ModelShapes, dict[str, ModelShapes]]:
    """Tell the model that learns or is sampled from those beside it.

    Args:
        models: Of a stage, by port.

    Returns:
        That at the port `policy`, or the largest of several that are sampled in turns; and the
        others by port.

    """
    chosen = "policy" if "policy" in models else max(models, key=lambda p: models[p].parameters)
    return models[chosen], {port: each for port, each in models.items() if port != chosen}


def _cached(where: str, name: str, revision: str) -> Path:
    """Find the config of a model at the hub in the local cache; nothing is fetched."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, _CONFIG, revision=revision)
    if isinstance(found, str):
        return Path(found).parent
    raise UserError(
        f"{where}: '{name}' is at the hub and was not fetched yet, and its config.json is what"
        " tells its size; give a folder that holds that one file with"
        f" --model-config {where}=DIR, or run posttrain run --only {where} first"
    )
