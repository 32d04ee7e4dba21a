"""Tables of the fields of a config: name, type, default, range, and what the field means."""

import json
from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from docs.hooks.words import cell, code, table
from posttrain.stage.config import StageConfig
from posttrain.stage.descriptions import descriptions
from posttrain.stage.slots import Part, Slot

HEADINGS = ("field", "type", "default", "range", "meaning")
_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
_SIZES = {"min_length": "at least", "max_length": "at most"}
_LONG = 32

LinkOfSlot = Callable[[str], str]
"""Gives the address of a slot's page, seen from the page that is written."""


def field_table(config: type[BaseModel], at: str, link: LinkOfSlot, usual: Any = None) -> str:
    """Write the fields of a config and, in dotted names, those of the configs within it.

    Args:
        config: Its class.
        at: What stands before each name, such as `rl.`; or nothing.
        link: Addresses of slots.
        usual: What the config is by default, where that is not the defaults of its class.

    Returns:
        A table in Markdown.

    """
    return table(HEADINGS, _rows(config, at, link, usual, ()))


def _rows(
    config: type[BaseModel], at: str, link: LinkOfSlot, usual: Any, above: tuple[type, ...]
) -> Iterator[tuple[str, ...]]:
    texts = descriptions(config)
    changing = config.schedulable() if issubclass(config, StageConfig) else set()
    for name, field in config.model_fields.items():
        spelled = field.alias or name
        if name == "kind" and issubclass(config, Part):
            continue
        default = getattr(usual, name) if usual is not None else default_of(field)
        inner = _config_within(field)
        told = "" if inner and isinstance(default, BaseModel) else code(_value(default))
        meaning = cell(texts.get(name, ""))
        kind = type_of(field, link)
        if name in changing:
            kind += f" or [schedule]({link('schedule')})"
        yield code(f"{at}{spelled}"), kind, told, range_of(field), meaning
        if inner and inner not in above and config not in above:
            own = default if isinstance(default, inner) else None
            yield from _rows(inner, f"{at}{spelled}.", link, own, (*above, config))


def default_of(field: FieldInfo) -> Any:
    """The default of a field; `PydanticUndefined` where a value must be given."""
    return field.get_default(call_default_factory=True, validated_data={})


def _value(value: Any) -> str:
    """A default as a recipe would write it."""
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, Part):
        changed = value.model_dump(mode="json", exclude_defaults=True, exclude={"kind"})
        return json.dumps({"kind": value.kind, **changed}) if changed else value.kind
    if isinstance(value, BaseModel):
        return _shortened(value.model_dump(mode="json", exclude_defaults=True))
    if isinstance(value, dict):
        return _shortened({name: _plain(each) for name, each in value.items()})
    if isinstance(value, list | tuple | set | frozenset):
        return _shortened([_plain(each) for each in value])
    return value if isinstance(value, str) and value else json.dumps(value, default=str)


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def _shortened(value: Any) -> str:
    said = json.dumps(value, default=str)
    return said if len(said) <= _LONG else f"{said[:_LONG]} ..."


def type_of(field: FieldInfo, link: LinkOfSlot) -> str:
    """The type of a field, as a person who writes YAML would say it."""
    if slot := _slot_in(field.metadata):
        return f"[{slot.name}]({link(slot.name)})"
    return _spelled(field.annotation, link)


def _spelled(annotation: Any, link: LinkOfSlot) -> str:
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        if slot := _slot_in(inside[1:]):
            return f"[{slot.name}]({link(slot.name)})"
        return _spelled(inside[0], link)
    if origin is Literal:
        return " or ".join(code(each) for each in inside)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_spelled(each, link) for each in inside))
    if annotation is NoneType:
        return "null"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    if origin is dict or getattr(origin, "__name__", "") == "Mapping":
        return f"names of {_spelled(inside[1], link)}"
    if inside and origin in (list, tuple, frozenset, set):
        return f"list of {_spelled(inside[0], link)}"
    plain = {int: "integer", float: "number", str: "text", bool: "true or false", Any: "anything"}
    return plain.get(annotation, getattr(annotation, "__name__", str(annotation)))


def range_of(field: FieldInfo) -> str:
    """What a value is held to, such as `≥ 1`; of a union what each of its members is."""
    found = [*_bounds(field.metadata)]
    for each in get_args(field.annotation):
        if get_origin(each) is Annotated:
            for meta in get_args(each)[1:]:
                found += _bounds(meta.metadata if isinstance(meta, FieldInfo) else [meta])
    return ", ".join(dict.fromkeys(found))


def _bounds(metadata: Any) -> Iterator[str]:
    for each in metadata:
        for name, sign in _BOUNDS.items():
            if (bound := getattr(each, name, None)) is not None:
                yield f"{sign} {bound}"
        for name, words in _SIZES.items():
            if (size := getattr(each, name, None)) is not None:
                yield f"{words} {size} long"
        if (pattern := getattr(each, "pattern", None)) is not None:
            yield code(pattern)


def _slot_in(metadata: Any) -> Slot[Any] | None:
    found = (getattr(each, "slot", None) for each in metadata)
    return next((each for each in found if isinstance(each, Slot)), None)


def _config_within(field: FieldInfo) -> type[BaseModel] | None:
    """The config that a field holds, where it holds one and no part of a slot."""
    if _slot_in(field.metadata):
        return None
    choices = [field.annotation, *get_args(field.annotation)]
    if get_origin(field.annotation) not in (None, Union, UnionType):
        return None
    found = [each for each in choices if isinstance(each, type) and issubclass(each, BaseModel)]
    return found[0] if len(found) == 1 else None
