"""Models in MLflow's sense: a name and a page for weights that lie elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from posttrain.provenance.ledger.records import ArtifactRecord
from posttrain.stage.artifact_kinds import kind_named
from posttrain.views.tracking.mlflow_entities import (
    MetricTies,
    last_part,
    measured_on,
    model_name,
    model_params,
    source_tags,
)


@dataclass
class LoggedModels:
    """Logged models of one store, by the digest of their weights.

    Args:
        client: Of MLflow.
        known: MLflow's ids by experiment and digest, filled in.

    """

    client: Any
    known: dict[tuple[str, str], str] = field(default_factory=dict)

    def tied(self, inputs: Sequence[ArtifactRecord], experiment: str) -> MetricTies:
        """What the figures of a stage may be about, by what it reads.

        Args:
            inputs: Of the stage; a model that MLflow does not know is named now.
            experiment: Of its run.

        """
        read = {last_part(each.role): self._find(each, experiment) for each in _models(inputs)}
        return MetricTies(measured_on(inputs), read)

    def make(
        self,
        outputs: Sequence[ArtifactRecord],
        experiment: str,
        *,
        made_in: str,
        params: Mapping[str, object],
    ) -> dict[str, str]:
        """Log models that a run made; MLflow gets a name for the weights, not a copy.

        Args:
            outputs: Of the stage.
            experiment: Of its run.
            made_in: MLflow's id of the run.
            params: Of the stage.

        Returns:
            MLflow's ids by the last part of their role.

        """
        from mlflow.entities import LoggedModelOutput

        made = {}
        for record in _models(outputs):
            model = self._new(record, experiment, made_in=made_in, params=params)
            made[last_part(record.role)] = self.known[experiment, record.digest] = model
        if made:
            logged = [LoggedModelOutput(model, step=0) for model in made.values()]
            self.client.log_outputs(made_in, logged)
        return made

    def _find(self, record: ArtifactRecord, experiment: str) -> str:
        place = experiment, record.digest
        if place not in self.known:
            found = self.client.search_logged_models(
                [experiment],
                filter_string=f"tags.`posttrain.sha256` = '{record.digest}'",
                max_results=1,
            )
            self.known[place] = found[0].model_id if found else self._new(record, experiment)
        return self.known[place]

    def _new(
        self,
        record: ArtifactRecord,
        experiment: str,
        *,
        made_in: str | None = None,
        params: Mapping[str, object] | None = None,
    ) -> str:
        from mlflow.entities import LoggedModelStatus

        model = self.client.create_logged_model(
            experiment,
            name=model_name(record),
            source_run_id=made_in,
            tags={"mlflow.model.isExternal": "true", **source_tags(record)},
            params=model_params(params or {}),
            model_type=record.type,
        )
        self.client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
        found: str = model.model_id
        return found


def _models(records: Sequence[ArtifactRecord]) -> list[ArtifactRecord]:
    return [record for record in records if kind_named(record.type).is_directory]
