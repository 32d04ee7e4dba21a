"""Names of the verifiers that tables of problems, and what stands beside them, name.

A verifier without settings is named by its kind. One with settings is `kind/label.digest`, of all
settings together that rows state for it, however many these are: a table of unit tests has as many
as rows, and they are one verifier. Parts of it, which its settings name, have names of their own.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import polars as pl
from pydantic import ValidationError

from posttrain.learning.rewards.verifiers.registry import VERIFIERS
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of, sorted_json
from posttrain.stage.slots import Part, name_of, parts_in

_DIGITS = 12


def names_of_sources(sources: Iterable[Mapping[str, Any]]) -> set[str]:
    """Name the verifiers of sources.

    Args:
        sources: Kind and settings of each, as they stand beside the problems.

    """
    said = [dict(each) for each in sources]
    return _names((each.pop("kind"), each) for each in said)


def names_of_rows(frame: pl.LazyFrame) -> set[str]:
    """Name the verifiers of rows, and what rows say for themselves to that of their source.

    Args:
        frame: With a column `verifier`, and one `metadata` where rows have settings.

    """
    columns = frame.collect_schema()
    metadata = pl.col("metadata") if "metadata" in columns else pl.lit("{}")
    kinds = frame.select("verifier").unique().collect()["verifier"].to_list()
    # Settings stand with each problem; other metadata would tell every row apart.
    configured = [kind for kind in kinds if not kind or _has_parameters(kind)]
    given = pl.when(pl.col("verifier").is_in(configured)).then(metadata).otherwise(pl.lit("{}"))
    rows = frame.select("verifier", given.alias("given")).unique().collect().iter_rows()
    return _names(each for own, text in rows for each in _said(own, json.loads(text)))


def _said(own: str, metadata: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    if own:
        yield own, metadata.get(own)
        return
    # Which verifier its source has, the row does not say: what has the name of one is meant for it.
    for kind, settings in metadata.items():
        if isinstance(settings, Mapping) and VERIFIERS.has(kind) and _has_parameters(kind):
            yield kind, settings


def _has_parameters(kind: str) -> bool:
    try:
        return VERIFIERS.find(kind).has_parameters()
    except ValueError:
        return False


def _names(said: Iterable[tuple[str, Mapping[str, Any] | None]]) -> set[str]:
    names: set[str] = set()
    sets: dict[tuple[str, str], set[str]] = defaultdict(set)
    for kind, settings in said:
        if settings is None:
            names.add(kind)
            continue
        part = VERIFIERS.find(kind)
        inside: list[Part] = []
        with suppress(UserError):  # of settings that only an older verifier takes
            verifier, *inside = parts_in(part.parse(settings, where=kind))
            if verifier == _as_it_is(part):
                names.add(kind)
                continue
        sets[kind, part.label(settings) or "set"].add(sorted_json(settings))
        names |= {name_of(each) for each in inside}
    return names | {f"{kind}/{label}.{_digest(found)}" for (kind, label), found in sets.items()}


def _digest(sets: set[str]) -> str:
    """Of one set of settings as it is written, as it always was; of several, all of them."""
    return sha256_of("\n".join(sorted(sets)))[:_DIGITS]


def _as_it_is(part: type[Part]) -> Part | None:
    """A part without any setting; None where it must have some."""
    try:
        return part()  # type: ignore[call-arg]
    except ValidationError:
        return None
