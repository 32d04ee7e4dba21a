"""Where a dataset input of the MLflow view lies: a path that DVC tracks, and its digest."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.stage.errors import UserError

_SCHEME = "dvc://"


@dataclass(frozen=True)
class DvcSource:
    """A `DatasetSource` in MLflow's sense; it does without MLflow's base class, and so its import.

    `path` is relative to the folder of `dvc.yaml`, `sha256` names the content.
    """

    path: str
    sha256: str = ""

    @staticmethod
    def _get_source_type() -> str:
        """MLflow's name for this kind of source."""
        return "dvc"

    @staticmethod
    def _can_resolve(raw_source: Any) -> bool:
        """Return whether something that a user passed as a source is one of ours."""
        return isinstance(raw_source, str) and raw_source.startswith(_SCHEME)

    @classmethod
    def _resolve(cls, raw_source: Any) -> "DvcSource":
        """The source that ``dvc://path`` names."""
        return cls(str(raw_source).removeprefix(_SCHEME))

    def load(self) -> Path:
        """The path in the current checkout."""
        path = Path(self.path)
        if not path.exists():
            raise UserError(f"{path} is not here; run `dvc pull {path}` in the project's folder")
        return path

    def to_dict(self) -> dict[str, str]:
        """Fields as MLflow stores them."""
        return {"path": self.path, "sha256": self.sha256}

    def to_json(self) -> str:
        """Fields as MLflow stores them, in one string."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, source_dict: Mapping[str, str]) -> "DvcSource":
        """The source that `to_dict` described."""
        return cls(source_dict["path"], source_dict.get("sha256", ""))

    @classmethod
    def from_json(cls, source_json: str) -> "DvcSource":
        """The source that `to_json` described."""
        return cls.from_dict(json.loads(source_json))
