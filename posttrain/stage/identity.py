"""What a config says of the mathematics, in a spelling that a new switch leaves as it was."""

from collections.abc import Mapping
from typing import Any

from pydantic.fields import FieldInfo

from posttrain.stage.config import StageConfig


def identity(config: StageConfig) -> dict[str, Any]:
    """The kind, and every field that changes the mathematics and is not at its default.

    A config's `MECHANICS` names its fields that only change how something is computed (an engine,
    the size of a micro-batch, when to checkpoint); they are left out. A part's `kind` always
    stands, with the version of its defaults where one was ever changed: `clip@2`.

    >>> class Clip(StageConfig):
    ...     low: float = 0.2
    ...     high: float = 0.28
    >>> identity(Clip(high=0.3))
    {'high': 0.3}
    """
    said: dict[str, Any] = {}
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if name == "kind":
            version = type(config).DEFAULTS_VERSION
            said[name] = value if version == 1 else f"{value}@{version}"
        elif name not in type(config).MECHANICS and not _at_default(field, value):
            said[field.alias or name] = _said(value)
    return said


def _at_default(field: FieldInfo, value: Any) -> bool:
    return not field.is_required() and bool(value == field.get_default(call_default_factory=True))


def _said(value: Any) -> Any:
    if isinstance(value, StageConfig):
        return identity(value)
    if isinstance(value, Mapping):
        return {str(key): _said(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_said(each) for each in value]
    return value
