"""Names of the verifiers that tables of problems, and what stands beside them, name.

A verifier without settings is named by its kind. One with settings is `kind/label.digest`, of all
settings together that rows state for it, however many these are: a table of unit tests has as many
as rows, and they are one verifier. Parts of it, which its settings name, have names of their own.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any

import polars as pl
from pydantic import TypeAdapter, ValidationError

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
        try:
            verifier, *inside = parts_in(part.parse(settings, where=kind))
            if verifier == _as_it_is(part):
                names.add(kind)
                continue
        except UserError:  # the rest is its source's to say, or only an older verifier takes them
            inside = _parts_in_fields(part, settings)
        sets[kind, part.label(settings) or "set"].add(sorted_json(settings))
        names |= {name_of(each) for each in inside}
    return names | {f"{kind}/{label}.{_digest(found)}" for (kind, label), found in sets.items()}


def _parts_in_fields(part: type[Part], settings: Mapping[str, Any]) -> list[Part]:
    """The parts that settings name, each field by itself: one that is missing hides no other."""
    found: list[Part] = []
    for name, field in part.model_fields.items():
        if name in settings:
            annotation: Any = Annotated[field.annotation, field]
            with suppress(ValidationError, UserError):
                found += parts_in(TypeAdapter(annotation).validate_python(settings[name]))
    return found


def _digest(sets: set[str]) -> str:
    """Of one set of settings as it is written, as it always was; of several, all of them."""
    return sha256_of("\n".join(sorted(sets)))[:_DIGITS]


def _as_it_is(part: type[Part]) -> Part | None:
    """A part without any setting; None where it must have some."""
    try:
        return part()  # type: ignore[call-arg]
    except ValidationError:
        return None
