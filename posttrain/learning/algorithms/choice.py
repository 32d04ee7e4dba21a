"""A preset's name, or a preset with some switches set otherwise, as the value of a config field."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.preset import Preset
from posttrain.learning.algorithms.presets import DEFAULT, PRESETS
from posttrain.stage.errors import UserError, nearest

# What chooses among the models of a section: with another of these, nothing else is inherited.
_KINDS = ("kind",)


def preset(name: str) -> Preset:
    """The preset of that name, or a `UserError` that names the nearest."""
    if name not in PRESETS:
        raise UserError(f"there is no algorithm '{name}'{nearest(name, PRESETS)}")
    return PRESETS[name]


def expand(value: Any) -> Any:
    """Switches in full from ``"grpo"`` or ``{"preset": "grpo", "ratio": {"low": 0.1}}``.

    Without `preset` the mapping changes `default`. A section is merged key by key; one that chooses
    another estimator or surrogate starts from the defaults of that, and one that is null is taken
    out. What is neither a name nor a mapping is left for the config to judge.
    """
    if isinstance(value, str):
        value = {"preset": value}
    if not isinstance(value, Mapping):
        return value
    changes = dict(value)
    name = changes.pop("preset", DEFAULT)
    if name not in PRESETS:
        raise ValueError(f"there is no algorithm '{name}'{nearest(str(name), PRESETS)}")
    return _merged(PRESETS[name].algorithm.model_dump(), changes)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        before = merged.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            value = _section(before, value)
        merged[key] = value
    return merged


def _section(before: Mapping[str, Any], value: Mapping[str, Any]) -> Mapping[str, Any]:
    other = any(kind in value and value[kind] != before.get(kind) for kind in _KINDS)
    return value if other else _merged(before, value)


Chosen = Annotated[Algorithm, BeforeValidator(expand)]
"""The type of a config field that holds an algorithm."""
