"""Weights that are not read yet: each knows where its numbers lie, and takes no memory.

They are on torch's meta device, so whatever would compute with them fails. Several
processes begin with such a model, and each reads its own rows of every weight when it is put in
shards. What is no weight (buffers, adapters, a new head) is there, as in one process.
"""

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Loaded = TypeVar("Loaded")
Places = tuple[Hashable, ...]
"""Where the weights of a model lie that are not read yet."""

SHARED_BY = "_shared_by"
"""Attribute of a model in shards: the processes."""

_STORED = "_stored_at"
"""Attribute of a parameter; it stays where the parameter's data are others."""
_ROWS_AT_ONCE_BYTES = 1 << 24


@dataclass(frozen=True)
class StoredWeight:
    """Where a weight lies, and what becomes of it on its way."""

    file: Path
    name: str
    dtype: torch.dtype
    """That of the loaded model, through which the numbers go to that of the parameter."""
    device: str
    """Where the model goes, as torch names it."""

    def rows(self, begin: int, end: int) -> Tensor:
        """Read some rows, in the model's type.

        Args:
            begin: First row.
            end: Behind the last row.

        Returns:
            A tensor of its own memory.

        """
        from safetensors import safe_open

        # Opened for each reading: a file that stays open counts all that was read of it.
        with safe_open(self.file, framework="pt") as file:
            found: Tensor = file.get_slice(self.name)[begin:end]
            return found.to(self.dtype, copy=True)


class _NotAsStoredError(Exception):
    """The model has weights that no file holds under their name and in their shape."""


def load_unread(load: Callable[[], Loaded], path: Path, *, device: str) -> Loaded | None:
    """Load a model through transformers without reading its weights.

    Args:
        load: Calls ``from_pretrained``.
        path: Folder with safetensors files.
        device: Where the model will go.

    Returns:
        What `load` returns; None where a weight is not in the files as the model has it, such as
        experts that transformers puts together.

    """
    try:
        with _linking(_files_by_name(path), device):
            return load()
    except _NotAsStoredError:
        return None


@contextmanager
def _linking(files: Mapping[str, Path], device: str) -> Iterator[None]:
    """Let transformers find out where weights lie, in the place of reading them."""
    from transformers import modeling_utils

    name = "convert_and_load_state_dict_in_model"
    convert = getattr(modeling_utils, name)

    def link(*, model: Any, state_dict: Mapping[str, Any], load_config: Any, **others: Any) -> Any:
        _refuse_converted(model, state_dict, load_config)
        held = model.state_dict(keep_vars=True)
        parameters = {id(parameter) for parameter in model.parameters()}
        for key, tensor in held.items():
            tensor._is_hf_initialized = True
            if key not in state_dict:
                continue
            stored = StoredWeight(files[key], key, load_config.dtype, device)
            if id(tensor) in parameters:
                setattr(tensor, _STORED, stored)
            else:
                owner, _, leaf = key.rpartition(".")
                whole = state_dict[key][...].to(tensor.dtype, copy=True)
                model.get_submodule(owner)._buffers[leaf] = whole.to(device)
        info, offloaded = convert(model=model, state_dict={}, load_config=load_config, **others)
        info.missing_keys -= state_dict.keys()
        return info, offloaded

    setattr(modeling_utils, name, link)
    try:
        yield
    finally:
        setattr(modeling_utils, name, convert)


def _refuse_converted(model: Any, state_dict: Mapping[str, Any], load_config: Any) -> None:
    """Refuse what transformers would rename, convert, hold in another type, or leave untied."""
    from transformers.core_model_loading import WeightConverter, apply_converters

    rules = load_config.weight_mapping or []
    converters = [each for each in rules if isinstance(each, WeightConverter)]
    tied = dict(getattr(model, "all_tied_weights_keys", {}))
    both = any(one in state_dict and other in state_dict for one, other in tied.items())
    others = {*tied, *tied.values()}
    shapes = {key: list(tensor.shape) for key, tensor in model.state_dict().items()}
    wrong = (
        both
        or load_config.dtype_plan
        or load_config.hf_quantizer is not None
        or any(key not in state_dict for key in shapes.keys() - others)
        or any(
            apply_converters(key, converters)[1] is not None
            or found.get_shape() != shapes.get(key, found.get_shape())
            for key, found in state_dict.items()
        )
    )
    if wrong:
        raise _NotAsStoredError


def _files_by_name(path: Path) -> dict[str, Path]:
    """The file of each stored tensor; two of one name are a reason to leave it to transformers."""
    from safetensors import safe_open

    found: dict[str, Path] = {}
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - it is no mapping
                if found.setdefault(name, file) != file:
                    raise _NotAsStoredError
    return found


def is_unread(model: nn.Module) -> bool:
    """Whether weights of a model are still to be read."""
    return any(parameter.is_meta for parameter in model.parameters())


def stored_at(weight: Tensor) -> StoredWeight | None:
    """Where a weight lies that is not read yet; None of one that is there."""
    return getattr(weight, _STORED, None) if weight.is_meta else None


def stored_places(weights: Iterable[tuple[str, Tensor]]) -> Places | None:
    """Say where all of a model's weights lie, and what they become.

    Args:
        weights: By name.

    Returns:
        Equal for equal weights; None where one of them is there, as that may change.

    """
    found: list[Hashable] = []
    for name, weight in weights:
        stored = stored_at(weight)
        if stored is None:
            return None
        written = stored.file.stat()
        found.append((name, weight.dtype, stored, written.st_mtime_ns, written.st_size))
    return tuple(found)


def read_rows(
    weight: Tensor, begin: int, end: int, *, stored: StoredWeight | None = None
) -> Tensor:
    """Read some rows of a weight, in the type in which the model holds it.

    Args:
        weight: Not read yet.
        begin: First row.
        end: Behind the last row.
        stored: Where it lies; None where the weight itself knows.

    Returns:
        The rows, in host memory.

    """
    source = stored or stored_at(weight)
    assert source is not None
    return source.rows(begin, end).to(weight.dtype)


def pieces(weight: Tensor) -> Iterator[Tensor]:
    """Go through the rows of a weight, read yet or not, a few MiB at a time if not.

    Args:
        weight: Of any model.

    Yields:
        Tensors that follow each other.

    """
    if stored_at(weight) is None:
        yield weight.detach()
        return
    count = weight.shape[0]
    at_once = max(1, _ROWS_AT_ONCE_BYTES * count // max(1, 4 * weight.numel()))
    for begin in range(0, count, at_once):
        yield read_rows(weight, begin, min(count, begin + at_once))


def carry(source: nn.Module, target: nn.Module) -> None:
    """Let the weights of another model lie where those of the same names do.

    Args:
        source: A model.
        target: A copy; what `source` has not read is not read there either.

    """
    targets = dict(target.named_parameters())
    for name, weight in source.named_parameters():
        stored = stored_at(weight)
        if stored is not None:
            setattr(targets[name], _STORED, stored)


def copied(model: Any) -> Any:
    """Copy a model; what is not read yet is not read in the copy either."""
    made = copy.deepcopy(model)
    carry(model, made)
    return made
