"""Every named algorithm, and how a recipe names one. A name says less than its parts do."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.frameworks import FRAMEWORK_METHODS
from posttrain.learning.algorithms.preset import Preset
from posttrain.learning.algorithms.published import GROUP_METHODS
from posttrain.learning.algorithms.reinforce_family import REINFORCE_METHODS
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.part_schema import PresetOf

DEFAULT = "default"

PRESETS: dict[str, Preset] = {
    DEFAULT: Preset(
        algorithm=Algorithm(),
        equation="A = r - mean_G r\nL = -1/Σ|o_i| Σ_i Σ_t min(ρ A, clip(ρ, 0.8, 1.28) A)",
        source="posttrain's own",
        note=(
            "Dr.GRPO's advantage, DAPO's clip-higher and token mean. The ratio is to the engine's"
            " own log-probabilities, which a gate of the stage holds near the trainer's."
        ),
    ),
    **GROUP_METHODS,
    **REINFORCE_METHODS,
    **FRAMEWORK_METHODS,
}


def preset(name: str) -> Preset:
    """Look a preset up.

    Args:
        name: Its name.

    Returns:
        The preset.

    Raises:
        UserError: There is none of that name; the nearest one is named.

    """
    if name not in PRESETS:
        raise UserError(f"there is no algorithm '{name}'{nearest(name, PRESETS)}")
    return PRESETS[name]


def expand(value: Any) -> Any:
    """Spell an algorithm out in full.

    Without `preset` a mapping changes `default`. A section is merged key by key; one of another
    `kind` starts from the defaults of that, and one that is null is taken out.

    Args:
        value: `"grpo"`, or `{"preset": "grpo", "surrogate": {"low": 0.1}}`; what is neither a name
            nor a mapping is left for the config to judge.

    Returns:
        All fields.

    Raises:
        ValueError: There is no preset of that name.

    >>> expand({"preset": "dapo", "surrogate": {"high": 0.3}})["surrogate"]
    {'kind': 'clip', 'level': 'token', 'low': 0.2, 'high': 0.3, 'dual': None}

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
            other = "kind" in value and value["kind"] != before.get("kind")
            value = value if other else _merged(before, value)
        merged[key] = value
    return merged


AlgorithmConfig = Annotated[
    Algorithm,
    BeforeValidator(expand, json_schema_input_type=Annotated[Any, PresetOf(Algorithm, PRESETS)]),
]
"""The type of a config field that holds an algorithm: a preset's name, or changes of one."""
