"""What MLflow is told, as it spells it: names, tags, parameters, data sets, whose a metric is."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from posttrain.provenance.ledger.records import ArtifactRecord
from posttrain.stage.artifact_kinds import kind_named

# What MLflow takes: names of letters, digits and a few marks, values of some thousand characters.
_FOREIGN = re.compile(r"[^\w\-. :/]")
_FOREIGN_TO_MODELS = re.compile(r"[/:.%\"']")
_LONGEST_NAME, LONGEST = 250, 5000
_LONGEST_OF_MODEL = 500
_TIMINGS = "seconds/"


@dataclass
class MetricTies:
    """Which model and which data set the figures of one stage are about.

    `read` and `made` are MLflow's ids of models by the last part of their role: the input
    `policies.rl` of an evaluation is `rl` in its metrics.
    """

    dataset: tuple[str, str] | None = None
    """Name and digest of the table that was measured on."""
    read: dict[str, str] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)

    def model(self, metric: str) -> str | None:
        """The model that a metric is about.

        >>> MetricTies(read={"sft": "m-1", "rl": "m-2"}).model("evaluate/rl/pass_at_1")
        'm-2'
        >>> MetricTies(read={"base": "m-1"}, made={"policy": "m-2"}).model("sft/loss")
        'm-2'

        Args:
            metric: Its name.

        Returns:
            The model that the name has between slashes, else the only one that the stage made, or
            that it read where it made none; None for how long something took, or where it is open.

        """
        if metric.startswith(_TIMINGS):
            return None
        by_name = {**self.read, **self.made}
        named = next((by_name[each] for each in metric.split("/")[1:-1] if each in by_name), None)
        if named is not None:
            return named
        candidates = list((self.made or self.read).values())
        return candidates[0] if len(candidates) == 1 else None


def last_part(role: str) -> str:
    """The last part of a role: `rl` of `policies.rl`."""
    return role.rpartition(".")[2]


def measured_on(inputs: Sequence[ArtifactRecord]) -> tuple[str, str] | None:
    """Name and digest of the data set that a stage measures on: its problems, else its first table.

    Args:
        inputs: Of the stage.

    Returns:
        As `dataset_input` names it; None where no table is read.

    """
    tables = [each for each in inputs if not kind_named(each.type).is_directory]
    tables.sort(key=lambda each: each.role != "problems")
    return (dataset_name(tables[0]), dataset_digest(tables[0])) if tables else None


def dataset_name(record: ArtifactRecord) -> str:
    """The name of a data set: the stage that made it, and the role."""
    return f"{record.producer}.{record.role}" if record.producer else record.role


def dataset_digest(record: ArtifactRecord) -> str:
    """What MLflow takes of a digest: 36 characters; a tag has all of it."""
    return record.digest[:36]


def model_name(record: ArtifactRecord) -> str:
    """The name of a logged model, which may hold no dot or slash."""
    name = f"{record.producer}-{record.role}" if record.producer else record.role
    return _FOREIGN_TO_MODELS.sub("-", name)[:_LONGEST_NAME]


def model_params(params: Mapping[str, object]) -> dict[str, str]:
    """Parameters of the stage that made a model, as short as MLflow keeps them of models."""
    return {entity_name(key): str(value)[:_LONGEST_OF_MODEL] for key, value in params.items()}


def dataset_input(record: ArtifactRecord) -> Any:
    """A dataset input, with the whole digest and the place as tags."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(
        name=dataset_name(record),
        digest=dataset_digest(record),
        source_type="local",
        source=json.dumps({"uri": record.path}),
        profile=json.dumps({"rows": record.rows, "bytes": record.size}),
    )
    tags = {"mlflow.data.context": record.role, **source_tags(record)}
    return DatasetInput(dataset, [InputTag(key, value) for key, value in tags.items()])


def source_tags(record: ArtifactRecord) -> dict[str, str]:
    """Where an artifact lies, and its digests in full."""
    tags = {"posttrain.source": f"dvc://{record.path}", "posttrain.sha256": record.digest}
    return tags | ({"posttrain.md5": record.md5} if record.md5 else {})


def tag_entities(tags: Mapping[str, str]) -> list[Any]:
    """Tags as MLflow takes them, cut where they are too long."""
    from mlflow.entities import RunTag

    return [RunTag(entity_name(key), value[:LONGEST]) for key, value in tags.items()]


def param_entities(params: Mapping[str, object]) -> list[Any]:
    """Parameters as MLflow takes them, cut where they are too long."""
    from mlflow.entities import Param

    return [Param(entity_name(key), str(value)[:LONGEST]) for key, value in params.items()]


def entity_name(text: str) -> str:
    """A name with nothing in it that MLflow refuses."""
    return _FOREIGN.sub("_", text)[:_LONGEST_NAME]


def milliseconds(moment: float) -> int:
    """Epoch seconds as MLflow counts time."""
    return int(moment * 1000)
