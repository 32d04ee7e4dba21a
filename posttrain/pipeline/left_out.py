"""Refuses a null that leaves out nothing, and looks like a slip for one that would."""

from collections.abc import Iterator, Mapping
from typing import Any

from posttrain.pipeline.slots import SLOTS, find_slot
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError, nearest


def refuse_near_misses(params: Mapping[str, Any], config: StageConfig, *, where: str) -> None:
    """Refuse a null under a name that no part has, where a part of nearly that name stays.

    In `regularizers: {kll: null}` the divergence would stay on, and nobody would be told. A null
    that takes a part out, or that says again what is so already, is left alone.

    Args:
        params: What a section says of the stage.
        config: The same, parsed.
        where: The section, for the error.

    Raises:
        UserError: There is such a null; the part's name is given.

    """
    for path in _nulls(params):
        *above, label = path
        parts = _at(config, above)
        if not isinstance(parts, Mapping) or label in parts:
            continue
        meant = nearest(label, parts)
        # Kinds are looked up last, as every registry is imported for it.
        if not meant or _was_there(type(config), params, path) or _is_a_kind(label):
            continue
        place = ".".join((where, *path))
        raise UserError(f"{place}: null leaves out nothing, as no part has that name{meant}")


def _is_a_kind(label: str) -> bool:
    """Tell whether a part of some slot is called so: then it is no slip."""
    return any(label in find_slot(name).parts for name in SLOTS)


def _nulls(said: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, value in said.items():
        if value is None:
            yield (str(name),)
        elif isinstance(value, Mapping):
            yield from ((str(name), *below) for below in _nulls(value))


def _at(config: Any, path: list[str]) -> Any:
    for name in path:
        config = config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
    return config


def _was_there(kind: type[StageConfig], params: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    """Whether the null takes something out: without it a part of that name is there."""
    *above, label = path
    parts = _at(kind.parse(_said_without(params, path), where=""), above)
    return isinstance(parts, Mapping) and label in parts


def _said_without(said: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    first, *below = path
    if not below:
        return {name: value for name, value in said.items() if name != first}
    return {**said, first: _said_without(said[first], tuple(below))}
