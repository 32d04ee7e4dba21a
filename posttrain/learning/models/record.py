"""What a policy remembers of its training: whose weights it began with, and how long it answers.

It lies in the model's own `config.json`, under `posttrain`, so that it goes wherever the model
goes; other loaders of Hugging Face's format pass over it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

QUANTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1.0)
"""Those of the lengths that are kept, by source."""

TAUGHT_QUANTILE = 0.99
"""A limit that goes by the answers that were taught goes by this quantile of their lengths."""

ROOM = 1.25
"""It is that much longer: what a policy writes is not always as short as what it was taught."""

UNTAUGHT_LIMIT = 512
"""Tokens that a policy gets which says nothing of what it was taught."""

_KEY = "posttrain"


def trained_from(model: "PreTrainedModel") -> tuple[str, ...]:
    """Return the digests of the weights that a model was trained from, the last ones last.

    Args:
        model: A policy; one from elsewhere has none.

    """
    return tuple(_record(model).get("ancestors", ()))


def remember_parent(model: "PreTrainedModel", digest: str) -> None:
    """Note some weights as the last ones that a model was trained from.

    Args:
        model: Before its first update; it keeps its record.
        digest: Of the weights, most often those that the model has.

    """
    _write(model, ancestors=[*trained_from(model), digest])


def answer_lengths(model: "PreTrainedModel") -> dict[str, tuple[int, ...]]:
    """Return how long the answers were that a model was taught last.

    Args:
        model: A policy; one from elsewhere says nothing.

    Returns:
        The `QUANTILES` of the tokens of an answer, its end token counted, by source.

    """
    return _lengths(getattr(model.config, _KEY, None))


def answer_lengths_in(folder: Path) -> dict[str, tuple[int, ...]]:
    """Read the same of a policy's folder, without loading it.

    Args:
        folder: With a `config.json`, or nothing is said.

    Returns:
        As `answer_lengths`.

    """
    file = folder / "config.json"
    if not file.is_file():
        return {}
    config = json.loads(file.read_text(encoding="utf-8"))
    return _lengths(config.get(_KEY) if isinstance(config, Mapping) else None)


def remember_lengths(
    model: "PreTrainedModel", lengths: Sequence[int], sources: Sequence[str]
) -> None:
    """Note how long the answers are that a model is taught.

    Args:
        model: It keeps the rest of its record.
        lengths: Tokens of each answer, its end token counted.
        sources: Source of each; without any, the record stays as it is.

    """
    if not lengths:
        return
    by_source: dict[str, list[int]] = {}
    for length, source in zip(lengths, sources, strict=True):
        by_source.setdefault(source, []).append(length)
    kept = {name: _quantiles(found) for name, found in sorted(by_source.items())}
    _write(model, answer_tokens=kept)


def limit_for(taught: Mapping[str, Sequence[int]]) -> int:
    """Return the tokens that answers of a policy need, by those that it was taught.

    Args:
        taught: Their lengths by source, as in `answer_lengths`.

    Returns:
        `ROOM` times the `TAUGHT_QUANTILE` of the source with the longest answers, in eights;
        `UNTAUGHT_LIMIT` where the policy says nothing.

    """
    if not taught:
        return UNTAUGHT_LIMIT
    return 8 * math.ceil(ROOM * max(map(tokens_needed, taught.values())) / 8)


def tokens_needed(quantiles: Sequence[int]) -> int:
    """Return how many tokens all but the longest answers of a source have.

    Args:
        quantiles: Of the source, as in `answer_lengths`.

    Returns:
        Their `TAUGHT_QUANTILE`.

    """
    return quantiles[QUANTILES.index(TAUGHT_QUANTILE)]


def share_over(quantiles: Sequence[int], limit: int) -> float:
    """Return about how many of the answers of a source are longer than a limit.

    Args:
        quantiles: Of a source, as in `answer_lengths`.
        limit: In tokens.

    Returns:
        The share, at most what it is.

    """
    over = [share for share, length in zip(QUANTILES, quantiles, strict=True) if length > limit]
    return 1 - over[0] if over else 0.0


def _quantiles(lengths: Sequence[int]) -> list[int]:
    import numpy as np

    found = np.quantile(lengths, QUANTILES, method="higher")
    return [int(each) for each in found]


def _lengths(record: object) -> dict[str, tuple[int, ...]]:
    """What a record says of lengths; nothing where the name is somebody else's."""
    kept = record.get("answer_tokens") if isinstance(record, Mapping) else None
    if not isinstance(kept, Mapping):
        return {}
    return {
        name: tuple(each)
        for name, each in kept.items()
        if isinstance(each, Sequence) and len(each) == len(QUANTILES)
    }


def _record(model: "PreTrainedModel") -> Mapping[str, Any]:
    found = getattr(model.config, _KEY, None)
    return found if isinstance(found, Mapping) else {}


def _write(model: "PreTrainedModel", **changed: Any) -> None:
    setattr(model.config, _KEY, {**_record(model), **changed})
