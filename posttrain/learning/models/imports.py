"""A model from where a recipe says it is, and what is to be remembered about it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from posttrain.learning.models.hub import fetch_model
from posttrain.learning.models.source import ModelSource
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DTYPES: Mapping[str, torch.dtype | None] = {
    "auto": None,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
}


def locate(source: ModelSource, inputs: Mapping[str, Path], *, scratch: Path) -> Path:
    """The folder with the model's files: the local one, or the hub's at the pinned commit."""
    given = inputs.get("files.model")
    if given is not None:
        return given
    return fetch_model(str(source.name), revision=str(source.revision), cache=scratch / "hub")


def write_facts(source: ModelSource, model: "PreTrainedModel", path: Path) -> None:
    """Write where the model is from, in which format it is kept, and what it says about generation.

    Of the last, the stages follow the end tokens alone: temperatures and cuts are the recipe's.

    Args:
        source: Where it was asked for.
        model: The model that was found there.
        path: The JSON file to write.

    """
    facts: dict[str, Any] = {
        "architecture": type(model).__name__,
        "dtype": str(model.dtype).removeprefix("torch."),
        "num_parameters": model.num_parameters(),
        "source": source.model_dump(include={"path", "name", "revision"}, exclude_none=True),
    }
    if model.can_generate():
        facts["generation_config"] = model.generation_config.to_diff_dict()
    path.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")


def settle_generation_config(model: "PreTrainedModel", source: Path) -> None:
    """Make a generation config one that can be saved: temperatures mean that it samples."""
    config = model.generation_config
    try:
        config.validate(strict=True)
    except ValueError:
        config.do_sample = True
        try:
            config.validate(strict=True)
        except ValueError as error:
            lines = [line.strip(" -") for line in str(error).splitlines() if line.strip()]
            reason = lines[min(1, len(lines) - 1)]
            raise UserError(
                f"{source / 'generation_config.json'} contradicts itself: {reason}"
            ) from None
