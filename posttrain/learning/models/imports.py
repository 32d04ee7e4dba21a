"""A model from where a recipe says it is, and what is to be remembered about it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from posttrain.data.cards import stated_license
from posttrain.learning.models.hub import fetch_model
from posttrain.learning.models.source import ModelSource
from posttrain.stage.errors import UserError, first_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_OBJECTS = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")

DTYPES: Mapping[str, torch.dtype | None] = {
    "auto": None,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
}


def locate(source: ModelSource, inputs: Mapping[str, Path]) -> Path:
    """Find the folder with the model's files: the local one, or the hub's at the pinned commit.

    Args:
        source: Name and commit at the hub; not read where a folder is connected.
        inputs: The stage's inputs by port; ``files.model`` is a local folder.

    Returns:
        The folder.

    """
    given = inputs.get("files.model")
    if given is not None:
        return given
    return fetch_model(str(source.name), revision=str(source.revision))


def check_described(folder: Path) -> None:
    """Refuse what is wrong with the JSON files of a model, of which libraries say no file.

    Args:
        folder: With the model's files.

    Raises:
        UserError: One is no JSON object, or tells no tokenizer where it should.

    """
    for file in sorted(folder.glob("*.json")):
        try:
            described = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{file}: not JSON: {first_line(error)}; save the model again"
            ) from None
        if not isinstance(described, dict) and file.name in _OBJECTS:
            raise UserError(f"{file}: it must hold one JSON object; save the model again")
        if file.name == "tokenizer_config.json" and not isinstance(
            described.get("tokenizer_class", ""), str
        ):
            raise UserError(f"{file}: tokenizer_class must be a name; save the tokenizer again")
    _check_config(folder / "config.json")
    if (file := folder / "tokenizer.json").is_file():
        _check_tokenizer(file)


def _check_config(file: Path) -> None:
    """Refuse numbers of the wrong type, at which transformers raises an error of no known class."""
    from transformers import AutoConfig

    try:
        AutoConfig.from_pretrained(file.parent, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError):
        return  # said where the model is loaded
    except Exception as error:  # noqa: BLE001 - its checks of fields have classes of their own
        said = " ".join(str(error).split())
        raise UserError(f"{file}: {said}; correct it, or save the model again") from None


def _check_tokenizer(file: Path) -> None:
    from tokenizers import Tokenizer

    try:
        Tokenizer.from_file(str(file))
    except Exception as error:  # noqa: BLE001 - the library raises its base class
        raise UserError(
            f"{file}: no tokenizer: {first_line(error)}; save the tokenizer again"
        ) from None


def write_facts(source: ModelSource, model: "PreTrainedModel", folder: Path, path: Path) -> None:
    """Write where the model is from, its license, its format, and what it says about generation.

    Of the last, the stages follow the end tokens alone: temperatures and cuts are the recipe's. The
    license is the one that the model's card states; without one, nothing is said of it.

    Args:
        source: Where it was asked for.
        model: The model that was found there.
        folder: With the model's files.
        path: The JSON file to write.

    """
    facts: dict[str, Any] = {
        "architecture": type(model).__name__,
        "dtype": str(model.dtype).removeprefix("torch."),
        "num_parameters": model.num_parameters(),
        "source": source.model_dump(include={"path", "name", "revision"}, exclude_none=True),
        **stated_license(folder),
    }
    if model.can_generate():
        facts["generation_config"] = model.generation_config.to_diff_dict()
    path.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")


def settle_generation_config(model: "PreTrainedModel", source: Path) -> None:
    """Make a generation config one that can be saved: temperatures mean that it samples.

    Args:
        model: Its ``generation_config`` is changed in place.
        source: The folder that it was read from, for the message.

    Raises:
        UserError: It contradicts itself even so.

    """
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


def told_of_router(model: "PreTrainedModel") -> str | None:
    """Say that the router of a mixture of experts is left to itself, if nobody asks otherwise.

    Args:
        model: Any.

    Returns:
        A sentence; None of a model that has no experts.

    """
    if not any(p.ndim == 3 and "experts" in name for name, p in model.named_parameters()):
        return None
    stated = getattr(model.config.get_text_config(), "router_aux_loss_coef", None)
    if stated is None:
        return "a mixture of experts; no loss keeps its router even, as it was not made with one"
    return (
        "a mixture of experts; the loss that keeps its router even is left out where"
        f" learner.router_loss is null (the checkpoint states {stated:g})"
    )
