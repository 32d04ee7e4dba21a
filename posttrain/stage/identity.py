"""What a config says of the mathematics, in a spelling that a new switch leaves as it was."""

from collections.abc import Mapping
from typing import Any

from pydantic.fields import FieldInfo

from posttrain.stage.config import StageConfig, configs_in


def identity(config: StageConfig) -> dict[str, Any]:
    """Collect the kind, and every field that changes the mathematics and is not at its default.

    A config's `MECHANICS` names its fields that only change how something is computed (an engine,
    the size of a micro-batch, when to checkpoint), its `without_effect` those that another field
    switches off; both are left out. A part's `kind` always stands, with the version of its defaults
    where one was ever changed: `clip@2`. A config without a kind says that version as `defaults`.

    >>> class Clip(StageConfig):
    ...     low: float = 0.2
    ...     high: float = 0.28
    >>> identity(Clip(high=0.3))
    {'high': 0.3}

    Args:
        config: A config, with the configs and parts in it.

    Returns:
        Plain values by field name, to be hashed as canonical JSON.

    """
    said: dict[str, Any] = {}
    version, fields = type(config).DEFAULTS_VERSION, type(config).model_fields
    if version != 1 and "kind" not in fields:
        said["defaults"] = version
    silent = type(config).MECHANICS | config.without_effect()
    for name, field in fields.items():
        value = getattr(config, name)
        if name == "kind":
            said[name] = value if version == 1 else f"{value}@{version}"
        elif name not in silent and not (_at_default(field, value) and _first_defaults(value)):
            said[field.alias or name] = _said(value)
    return said


def _at_default(field: FieldInfo, value: Any) -> bool:
    if field.is_required():
        return False
    default = field.get_default(call_default_factory=True)
    # Of a config inside, what counts is what would be said of it.
    return bool(type(value) is type(default) and _said(value) == _said(default))


def _first_defaults(value: Any) -> bool:
    """True where no config inside has had a default changed, so that leaving it out says enough."""
    return all(type(each).DEFAULTS_VERSION == 1 for each in configs_in(value))


def _said(value: Any) -> Any:
    if isinstance(value, StageConfig):
        said = identity(value)
        return said["kind"] if value.BRIEF and said.keys() == {"kind"} else said
    if isinstance(value, Mapping):
        return {str(key): _said(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_said(each) for each in value]
    return value
