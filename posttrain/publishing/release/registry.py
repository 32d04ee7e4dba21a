"""MLflow's model registry as a mirror of the git tags: versions and environment aliases."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient

_TAG = "posttrain.release"
# Of a registered model that was made for releases: one that somebody made by hand is theirs.
_OURS = "posttrain.releases"


class Registry:
    """Writes to the tracking server of the project; imported and opened at the first use."""

    def __init__(self, state: Path, uri: str | None = None) -> None:
        self._state = state
        self._uri = uri
        self._opened: MlflowClient | None = None

    def register(self, name: str, version: str, source: str) -> None:
        """Add a model version that stands for a release."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.create_registered_model(name, tags={_OURS: "true"})
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        self._client.create_model_version(
            name,
            source=source,
            tags={_TAG: version},
            description=f"{name}@{version}",
        )

    def unregister(self, name: str, version: str) -> None:
        """Remove the model version of a release, and our model where it was the only one."""
        for each in self._versions(name, version):
            self._client.delete_model_version(name, each.version)
        if not self._client.search_model_versions(f"name='{name}'"):
            for model in self._client.search_registered_models(f"name='{name}'"):
                if _OURS in model.tags:
                    self._client.delete_registered_model(name)

    def assign(self, name: str, environment: str, version: str | None) -> None:
        """Point an environment's alias to a release, or to nothing."""
        if version is None:
            self._client.delete_registered_model_alias(name, environment)
            return
        found = self._versions(name, version)
        if not found:
            raise UserError(
                f"MLflow has no model version for {name}@{version}; its database was made anew: "
                "set POSTTRAIN_TRACKING=off to move the git tag alone"
            )
        self._client.set_registered_model_alias(name, environment, str(found[0].version))

    def assigned(self, name: str, environment: str) -> str | None:
        """The release that an environment's alias points to."""
        from mlflow.exceptions import MlflowException

        try:
            tags = self._client.get_model_version_by_alias(name, environment).tags
        except MlflowException:
            return None
        return tags.get(_TAG) or None

    def _versions(self, name: str, version: str) -> list[Any]:
        found = self._client.search_model_versions(f"name='{name}'")
        return [each for each in found if each.tags.get(_TAG) == version]

    @property
    def _client(self) -> Any:
        if self._opened is None:
            from filelock import FileLock
            from mlflow import MlflowClient

            where = self._uri or os.environ.get("MLFLOW_TRACKING_URI")
            where = where or f"sqlite:///{self._state / 'mlflow.db'}"
            with FileLock(self._state / "mlflow.lock"):
                self._opened = MlflowClient(tracking_uri=where, registry_uri=where)
        return self._opened


def open_registry(state: Path) -> Registry | None:
    """The mirror, or None where tracking is turned off."""
    return None if os.environ.get("POSTTRAIN_TRACKING") == "off" else Registry(state.resolve())
