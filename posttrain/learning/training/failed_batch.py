"""The batch at which training stopped being finite, kept so that the failure can be replayed."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posttrain.learning.models.load import weights_digest
from posttrain.learning.models.optim import NotFiniteError
from posttrain.stage.errors import UserError


@dataclasses.dataclass(frozen=True)
class FailedBatch:
    """Tensors of every micro-batch by field name, and the facts of the step."""

    parts: Sequence[Mapping[str, Tensor]]
    facts: Mapping[str, Any]


@contextmanager
def kept_for_replay(
    folder: Path, model: torch.nn.Module, parts: Sequence[Any], *, step: int, seed: int
) -> Iterator[None]:
    """Save the parts of a step where its body meets a number that is not finite, and name the file.

    Args:
        folder: Where the batch and the weights are kept.
        model: The weights that the step started from, as an optimizer refuses such a gradient
            before it moves.
        parts: The dataclasses of the step's micro-batches.
        step: Number of the step, from 1.
        seed: Of the stage.

    Yields:
        Nothing.

    Raises:
        NotFiniteError: The body's own, with the place of the file.

    """
    try:
        yield
    except NotFiniteError as error:
        told = keep_for_replay(error, folder, model, parts, step=step, seed=seed)
        raise NotFiniteError(told) from None


def keep_for_replay(
    error: NotFiniteError,
    folder: Path,
    model: torch.nn.Module,
    parts: Sequence[Any],
    *,
    step: int,
    seed: int,
) -> str:
    """Save the parts of a step that met a number that is not finite.

    Args:
        error: What says so.
        folder: Where the batch and the weights are kept.
        model: The weights that the step started from.
        parts: The dataclasses of the step's micro-batches.
        step: Number of the step, from 1.
        seed: Of the stage.

    Returns:
        The error's sentence, with the place of the file.

    """
    facts = {"step": step, "seed": seed, "weights": weights_digest(model)}
    path = save_failed_batch(folder, parts, facts=facts)
    _save_weights(model, weights_beside(path))
    return (
        f"{error}; `posttrain replay --batch FILE` says where it began; the batch is kept in {path}"
    )


def weights_beside(batch: Path) -> Path:
    """Folder of the weights that a kept batch met."""
    return batch.with_suffix(".weights")


def _save_weights(model: torch.nn.Module, path: Path) -> None:
    """A whole model in one process; adapters and shards are not one that could be loaded."""
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        return
    if not any("lora_" in name for name, _ in model.named_parameters()):
        model.save_pretrained(path)


def save_failed_batch(folder: Path, parts: Sequence[Any], *, facts: Mapping[str, Any]) -> Path:
    """Write every tensor of a step's micro-batches to one safetensors file.

    Args:
        folder: Made where it is missing.
        parts: The micro-batches, dataclasses that hold tensors.
        facts: For JSON, ``step`` among them; kept in the file's metadata.

    Returns:
        The file.

    """
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    numbers: list[dict[str, Any]] = []
    for index, part in enumerate(parts):
        values = dict(_fields(part))
        kept = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        tensors |= {f"{index}.{n}": v.detach().cpu().clone().contiguous() for n, v in kept.items()}
        numbers.append({n: v for n, v in values.items() if isinstance(v, bool | int | float | str)})
    path = folder / f"failed-step-{facts['step']:09d}.safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    described = json.dumps({**facts, "parts": numbers}, sort_keys=True)
    save_file(tensors, path, metadata={"facts": described})
    return path


def load_failed_batch(path: Path) -> FailedBatch:
    """Read what `save_failed_batch` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {})["facts"])
            parts: list[dict[str, Tensor]] = [{} for _ in facts["parts"]]
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                index, _, field = name.partition(".")
                parts[int(index)][field] = file.get_tensor(name)
    except (OSError, SafetensorError, KeyError, IndexError, TypeError, ValueError):
        raise UserError(
            f"{path}: this is no kept batch; give the file that the run named"
        ) from None
    return FailedBatch(parts, facts)


def _fields(part: Any) -> Iterator[tuple[str, Any]]:
    """Fields of a dataclass, those of the dataclasses inside it as ``outer.inner``."""
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if dataclasses.is_dataclass(value):
            yield from ((f"{field.name}.{name}", inner) for name, inner in _fields(value))
        else:
            yield field.name, value
