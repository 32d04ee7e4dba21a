"""JSON schemas of what a recipe spells shorter than its config: parts, named parts, presets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

_NULL: JsonSchemaValue = {"type": "null"}


def referable(config: type[BaseModel]) -> CoreSchema:
    """The schema of a config so that a JSON schema states it once and refers to it."""
    name = f"{config.__module__}.{config.__qualname__}:{id(config)}"
    named = cast("CoreSchema", {**config.__pydantic_core_schema__, "ref": name})
    # What is handed to a JSON schema's handler is stated there; what is inside of it, referred to.
    return core_schema.definitions_schema(named, [])


def schema_of_part(
    parts: Mapping[str, type[BaseModel]], handler: GetJsonSchemaHandler
) -> JsonSchemaValue:
    """Describe a place for one of several parts.

    Args:
        parts: Kind -> class of those that there are.
        handler: Pydantic's, which keeps the definitions.

    Returns:
        The JSON schema: the kind of a part that needs no settings, or a mapping with a kind and
        the fields of that kind.

    """
    kinds = sorted(parts)
    mapping = {
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"enum": kinds}},
        "discriminator": {"propertyName": "kind"},
        "oneOf": [_branch(kind, handler(referable(parts[kind]))) for kind in kinds],
    }
    return {"anyOf": [{"enum": [kind for kind in kinds if not _asks(parts[kind])]}, mapping]}


def _branch(kind: str, fields: JsonSchemaValue) -> JsonSchemaValue:
    """The fields under one kind alone: `kind: str` in a plug-in would take that of another."""
    return {"allOf": [fields], "properties": {"kind": {"const": kind}}}


def schema_of_changes(config: type[BaseModel], handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    """Describe some fields of a config, by which a known one is changed: none is required.

    Args:
        config: The config whose fields may be given.
        handler: Pydantic's, which makes and resolves schemas.

    Returns:
        The schema of the config without its list of required fields.

    """
    whole = handler.resolve_ref_schema(handler(referable(config)))
    return {name: value for name, value in whole.items() if name != "required"}


@dataclass(frozen=True, eq=False)
class PartsByName:
    """In a JSON schema: a mapping of parts in which a name may say the kind, and null takes out."""

    slot: Any
    """The slot of the parts."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Names beside the kinds that say one: name -> kind."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe every known name by its own fields, and others as parts with a kind."""
        parts = self.slot.offered()
        known = {kind: kind for kind in parts} | dict(self.labels)
        whole = schema_of_part(parts, handler)
        named = {
            name: {"anyOf": [schema_of_changes(parts[kind], handler), whole, _NULL]}
            for name, kind in known.items()
        }
        others = {"anyOf": [whole, _NULL]}
        return {"type": "object", "properties": named, "additionalProperties": others}


@dataclass(frozen=True, eq=False)
class PresetOf:
    """In a JSON schema: a preset's name, or a mapping of what differs from a preset."""

    config: type[BaseModel]
    presets: Iterable[str]

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe the names, and the fields; a part that is changed need not say its kind."""
        names = {"enum": [*self.presets]}
        changes = schema_of_changes(self.config, handler)
        fields = {"preset": names, **changes["properties"]}
        for name, info in self.config.model_fields.items():
            for slot in (each.slot for each in info.metadata if hasattr(each, "slot")):
                parts = [schema_of_changes(part, handler) for part in slot.offered().values()]
                fields[name] = {"anyOf": [{"enum": sorted(slot.offered())}, *parts]}
        return {"anyOf": [names, {**changes, "properties": fields}]}


def _asks(part: type[BaseModel]) -> bool:
    """True where a part has fields without a default."""
    return any(field.is_required() for name, field in part.model_fields.items() if name != "kind")
