"""What a recipe says about a model that someone else made."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import model_validator

from posttrain.stage.config import StageConfig
from posttrain.stage.needs import HUB


class ModelSource(StageConfig):
    """Which model: a local directory, or a name and a revision on the Hugging Face hub."""

    path: str | None = None
    """Directory of a saved model, relative to the recipe; its bytes become part of the key."""
    name: str | None = None
    """Name on the hub, such as `HuggingFaceTB/SmolLM2-135M`."""
    revision: str | None = None
    """Commit of the named model (40 hexadecimal digits): a branch can move, a commit cannot."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format of the weights that are kept; `auto` is the checkpoint's own."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.path is None) == (self.name is None):
            said = "neither path nor name is set" if self.path is None else "path and name are set"
            raise ValueError(
                f"{said}; set one of them: path, the folder of a local model, or name, with its"
                " revision, of one on the hub"
            )
        if self.name is not None and not _is_commit(self.revision):
            raise ValueError(
                f"'{self.name}' needs revision, the commit to take as 40 hexadecimal digits; "
                "the model's page lists them under 'Files and versions'"
            )
        if self.path is not None and self.revision is not None:
            raise ValueError("revision belongs to a name on the hub; remove it, or path")
        return self

    def reaches(self) -> frozenset[str]:
        """Connect to the hub where the model is named there."""
        return frozenset({HUB} if self.name else ())

    def local_files(self) -> Mapping[str, str]:
        """The model directory arrives as `files.model`."""
        return {"model": self.path} if self.path is not None else {}


def _is_commit(revision: str | None) -> bool:
    return revision is not None and len(revision) == 40 and set(revision) <= set("0123456789abcdef")
