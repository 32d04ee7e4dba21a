"""Which architectures are known not to train, pack or draw here, by what config.json says alone.

What cannot be told from there is measured where a model is imported: see `tasks.import_model`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posttrain.stage.errors import UserError

_INDEXED = "chooses what a token attends to by an index that other rows of its batch change"
NOT_TRAINED: Mapping[str, str] = {
    "deepseek_v32": _INDEXED,
    "deepseek_v4": _INDEXED,
    "glm_moe_dsa": _INDEXED,
    "minimax_m3_vl_text": _INDEXED,
}
"""Architectures by transformers' `model_type`, and what of each rules out training."""
_PADDED = "takes the padding of a batch into its states"
_OWN_CACHE = "keeps earlier tokens in a cache of its own"
NOT_DRAWN: Mapping[str, str] = {
    "nemotron_h": _PADDED,
    "recurrent_gemma": _PADDED,
    "rwkv": _PADDED,
    "falcon_h1": "keeps keys and a state in one layer",
    "zamba": "keeps keys and a state in one layer",
    "zamba2": "keeps keys and a state in one layer",
    "minimax": _OWN_CACHE,
    "xlstm": _OWN_CACHE,
}
"""Architectures that train, and what of each keeps engine torch from drawing with it."""
_STATES = "has layers whose state goes on from one row into the next"
_COUNTED = "counts positions from the first of the rows on"
NOT_PACKED: Mapping[str, str] = {
    "bamba": _STATES,
    "falcon_h1": _STATES,
    "jamba": _STATES,
    "lfm2": _STATES,
    "mamba": _STATES,
    "mamba2": _STATES,
    "qwen3_5_text": _STATES,
    "qwen3_next": _STATES,
    "recurrent_gemma": _STATES,
    "bloom": _COUNTED,
    "mpt": _COUNTED,
    "opt": _COUNTED,
}
"""Architectures that train, and what of each mixes packed rows. Of others that do it, it hangs on
their settings too: they are found out when a stage tries the model."""


def model_type_of(folder: Path) -> str | None:
    """Read which architecture a model has; of one that reads images too, that of its text.

    Args:
        folder: With ``config.json``.

    Returns:
        transformers' `model_type`, or None where nothing says it.

    """
    try:
        described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    text = _mapping(_mapping(described).get("text_config")) or _mapping(described)
    named = text.get("model_type") or _mapping(described).get("model_type")
    return named if isinstance(named, str) else None


def refuse_untrained(model_type: str | None, *, where: str) -> None:
    """Refuse an architecture that would learn something else than what it is told.

    Args:
        model_type: Of the model; None where it is not known.
        where: The model's folder, or the stage.

    Raises:
        UserError: It is known not to train.

    """
    if model_type is not None and model_type in NOT_TRAINED:
        raise UserError(
            f"{where}: the architecture '{model_type}' {NOT_TRAINED[model_type]}, so it cannot be"
            " trained here; take a model whose layers attend to all earlier tokens, or to a window"
        )


def refuse_undrawn(model_type: str | None, *, where: str) -> None:
    """Refuse to draw by the decode loop of this package where that would draw something else.

    Args:
        model_type: Of the model; None where it is not known.
        where: Who would draw.

    Raises:
        UserError: It is known that this cannot be done.

    """
    if model_type is not None and model_type in NOT_DRAWN:
        raise UserError(
            f"{where}: the architecture '{model_type}' {NOT_DRAWN[model_type]}, so that engine"
            " torch does not draw with it; set engine to vllm, or take another architecture"
        )


def refuse_packed(model_type: str | None, *, where: str) -> None:
    """Refuse to lay rows end to end where one would see another.

    Args:
        model_type: Of the model; None where it is not known.
        where: The stage that would train.

    Raises:
        UserError: It is known that they would.

    """
    if model_type is not None and model_type in NOT_PACKED:
        raise UserError(
            f"{where}.learner.packing: the architecture '{model_type}' {NOT_PACKED[model_type]},"
            f" so that packed rows are not what they are alone; set {where}.learner.packing to"
            " false"
        )


def refuse_headless(model_type: str | None, *, where: str) -> None:
    """Refuse a scalar head on an architecture for which transformers has no model with one.

    Args:
        model_type: Of the model; None where it is not known.
        where: The stage that would put the head there.

    Raises:
        UserError: There is none.

    """
    from transformers.models.auto import modeling_auto

    headed = modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    if model_type is not None and model_type not in headed:
        raise UserError(
            f"{where}: transformers has no model with a scalar head for the architecture"
            f" '{model_type}'; set {where}.parameterization to likelihood"
        )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
