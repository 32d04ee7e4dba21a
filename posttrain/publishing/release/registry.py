"""MLflow's model registry as a mirror of the git tags: versions and environment aliases."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from posttrain.stage.errors import UserError, masked
from posttrain.views.tracking.mlflow_writer import quiet_mlflow

if TYPE_CHECKING:
    from mlflow import MlflowClient

_VERSIONS = "mlflow.modelVersions"
_TAG, _SOURCE = "posttrain.release", "posttrain.source"
# Of a registered model that was made for releases: one that somebody made by hand is theirs.
_OURS = "posttrain.releases"


class Registry:
    """Writes to the tracking server of the project; imported and opened at the first use."""

    def __init__(self, state: Path, uri: str | None = None) -> None:
        self._state = state
        self._uri = uri
        self._opened: MlflowClient | None = None

    def register(self, name: str, version: str, source: str, *, policy: str = "") -> None:
        """Add a model version that stands for a release.

        Args:
            name: Of the releases.
            version: The release's.
            source: URI of its folder.
            policy: Digest of the policy, by which the run and the logged model that it came from
                are found; both stay open where MLflow has none such.

        """
        with self._plain_errors():
            with _expect("RESOURCE_ALREADY_EXISTS"):
                self._client.create_registered_model(name, tags={_OURS: "true"})
            made = self._logged_model(policy) if policy else None
            # A server takes no folder outside of its own artifacts, but a model that it has.
            is_remote = self._where.startswith(("http:", "https:"))
            registered = self._client.create_model_version(
                name,
                source=f"models:/{made.model_id}" if made is not None and is_remote else source,
                run_id=made.source_run_id if made is not None else None,
                model_id=made.model_id if made is not None else None,
                tags={_TAG: version, _SOURCE: source},
                description=f"{name}@{version}",
            )
            if made is not None:
                # By this the page of the model names its versions.
                known = json.loads(made.tags.get(_VERSIONS) or "[]")
                known.append({"name": name, "version": str(registered.version)})
                self._client.set_logged_model_tags(made.model_id, {_VERSIONS: json.dumps(known)})

    def _unlink(self, name: str, number: str) -> None:
        """Take a version off the page of its model."""
        for model in self._logged_models(f"tags.`{_VERSIONS}` LIKE '%{name}%'"):
            known = json.loads(model.tags[_VERSIONS])
            left = [each for each in known if each != {"name": name, "version": number}]
            if left != known:
                self._client.set_logged_model_tags(model.model_id, {_VERSIONS: json.dumps(left)})

    def _logged_model(self, policy: str) -> Any:
        """The newest logged model of a policy that a run made; None where there is none."""
        found = self._logged_models(f"tags.`posttrain.sha256` = '{policy}'")
        return next((each for each in found if each.source_run_id), None)

    def _logged_models(self, condition: str) -> list[Any]:
        experiments = [each.experiment_id for each in self._client.search_experiments()]
        return [*self._client.search_logged_models(experiments, filter_string=condition)]

    def unregister(self, name: str, version: str) -> None:
        """Remove the model version of a release, and our model where it was the only one."""
        with self._plain_errors():
            for each in self._versions(name, version):
                self._client.delete_model_version(name, each.version)
                self._unlink(name, str(each.version))
            if not self._client.search_model_versions(f"name='{name}'"):
                for model in self._client.search_registered_models(f"name='{name}'"):
                    if _OURS in model.tags:
                        self._client.delete_registered_model(name)

    def knows(self, name: str, version: str) -> bool:
        """Return whether there is a model version for a release."""
        with self._plain_errors():
            return bool(self._versions(name, version))

    def require(self, name: str, version: str) -> None:
        """Refuse a release that an alias cannot point to, because MLflow does not know it."""
        if not self.knows(name, version):
            raise UserError(
                f"MLflow has no model version for {name}@{version}; its database was made anew, or "
                "tracking was off when the release was created: posttrain mlflow rebuild adds it, "
                "and POSTTRAIN_TRACKING=off moves the git tag alone"
            )

    def assign(self, name: str, environment: str, version: str | None) -> None:
        """Point an environment's alias to a release; to nothing where MLflow has none such."""
        with self._plain_errors():
            found = self._versions(name, version) if version is not None else []
            if found:
                self._client.set_registered_model_alias(name, environment, str(found[0].version))
                return
            with _expect("RESOURCE_DOES_NOT_EXIST"):
                self._client.delete_registered_model_alias(name, environment)

    def assigned(self, name: str, environment: str) -> str | None:
        """Return the release that an environment's alias points to, or None where it has none."""
        with self._plain_errors():
            with _expect("RESOURCE_DOES_NOT_EXIST"):
                # Asked for an absent alias, MLflow says that a parameter is invalid.
                numbers = self._client.get_registered_model(name).aliases
                if environment in numbers:
                    found = self._client.get_model_version(name, numbers[environment])
                    return found.tags.get(_TAG) or None
            return None

    def _versions(self, name: str, version: str) -> list[Any]:
        found = self._client.search_model_versions(f"name='{name}'")
        return [each for each in found if each.tags.get(_TAG) == version]

    @property
    def _client(self) -> Any:
        if self._opened is None:
            from filelock import FileLock
            from mlflow import MlflowClient

            with FileLock(self._state / "mlflow.lock"):
                self._opened = MlflowClient(tracking_uri=self._where, registry_uri=self._where)
        return self._opened

    @property
    def _where(self) -> str:
        given = self._uri or os.environ.get("MLFLOW_TRACKING_URI")
        return given or f"sqlite:///{self._state / 'mlflow.db'}"

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        """Say in one sentence that MLflow, or the database behind it, fails."""
        quiet_mlflow()
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except (MlflowException, SQLAlchemyError) as error:
            reason = shorten(str(error).partition("\n")[0], 300)
            sentence = (
                f"MLflow's registry at {self._where} failed ({reason}); see that it runs and that "
                "MLFLOW_TRACKING_URI is right, then do this again"
            )
            raise UserError(masked(sentence)) from error


@contextmanager
def _expect(code: str) -> Iterator[None]:
    """Go on after an error of MLflow with this code; any other one is raised."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code != code:
            raise


def open_registry(state: Path) -> Registry | None:
    """The mirror, or None where tracking is turned off."""
    return None if os.environ.get("POSTTRAIN_TRACKING") == "off" else Registry(state.resolve())
