"""Formats of recipes: how one that was written for an older posttrain goes on working.

A recipe's `format` says which spelling it is in; today's is `FORMAT`. One without it may be of any
format, so it is read as the oldest: what it spells as of old is translated, with a notice of one
line, and what it spells as of today stays. A recipe of a newer format is refused.

To rename a field, add one line to `RENAMES` in the commit that renames it, and correct the shipped
recipes; to drop a field, one to `GONE`; to rename a value (a kind, a choice), one to `VALUES`,
under the path that the field has after all renames; what needs more than that is a function in
`recipe_rewrites`. The config of a section's task says what is old: a field that it has stays, so
that the own task of a project keeps its names. A field is never renamed back: its old name may
stand in somebody's recipe.
tests/pipeline/recipes_0_1 holds recipes of 0.1, which must resolve.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel

from posttrain.pipeline.recipe_rewrites import LEFT_OUT, REWRITES, Rewrite
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.spec import Task

FORMAT = 3
"""The format that this version writes. Raise it when an old spelling gets another meaning."""

RENAMES: Mapping[str, str] = {
    "*.algorithm.advantage.estimator": "*.algorithm.advantage.kind",
    "*.algorithm.ratio.surrogate": "*.algorithm.ratio.kind",
    "*.algorithm.ratio": "*.algorithm.surrogate",
    "*.algorithm.kl": "*.algorithm.regularizers.kl",
    "*.algorithm.entropy": "*.algorithm.regularizers.entropy",
    "*.optimisation": "*.optimization",
    "*.optimization.epochs": "*.updates.epochs",
    "*.optimization.minibatches": "*.updates.minibatches",
    "*.optimization.micro_batch_tokens": "*.updates.micro_batch_tokens",
    "*.optimizer": "*.optimization.optimizer",
    "*.learning_rate": "*.optimization.learning_rate",
    "*.weight_decay": "*.optimization.weight_decay",
    "*.schedule": "*.optimization.schedule",
    "*.warmup_steps": "*.optimization.warmup_steps",
    "*.decay_fraction": "*.optimization.decay_fraction",
    "*.max_grad_norm": "*.optimization.max_grad_norm",
    "*.optimization.schedule": "*.optimization.lr_schedule",
    "*.engine.name": "*.engine.kind",
    "*.sampling.engine.name": "*.sampling.engine.kind",
    "*.parameterisation": "*.parameterization",
    "*.centring": "*.centering",
    "release.licences": "release.licenses",
    "release.licence": "release.license",
}
"""Old path -> new path, each beginning with the section's name; applied in this order.

A `*` stands for one name, such as the section's, or for one place of a list; the new path takes the
same ones, in order: `"*.engine.name": "*.engine.kind"`. The two may differ in depth. A path whose
field a section does not have is nothing to do.
"""

VALUES: Mapping[str, Mapping[Any, Any]] = {
    "release.gates.*.kind": {"licence": "license"},
    "release.gates.*.test": {"paired_bootstrap": "mean"},
    "*.algorithm.old_policy": {"sampler": "engine"},
    "*.algorithm": {"rpo": "iterative_rpo"},
    "*.algorithm.preset": {"rpo": "iterative_rpo"},
}
"""Path of today -> old value -> new value: `"*.optimizer": {"adam": "adamw"}`."""

GONE: Mapping[str, str] = {}
"""Path of a field that is no more -> why it may be dropped, as the end of the notice."""


KeyPath = list[Any]
"""Path of one value: the keys and places of a list on the way to it, as they are in the recipe."""


@dataclass(frozen=True)
class Migrated:
    """A recipe's values in today's spelling, and what was translated, for the notice."""

    values: dict[str, Any]
    changes: tuple[str, ...]


def migrate(
    values: Mapping[str, Any],
    tasks: Mapping[str, Task],
    *,
    renames: Mapping[str, str] = RENAMES,
    respelled: Mapping[str, Mapping[Any, Any]] = VALUES,
    gone: Mapping[str, str] = GONE,
    rewrites: Mapping[str, Rewrite] = REWRITES,
    left_out: Mapping[str, Rewrite] = LEFT_OUT,
) -> Migrated:
    """Translate what is spelled as of old.

    Args:
        values: Sections of a recipe as read; they are not changed.
        tasks: Section -> its task, whose config has today's fields. In a section without one
            every path that fits is translated.
        renames: Old path -> new path.
        respelled: Path -> old value -> new value.
        gone: Path -> why it is dropped.
        rewrites: Package of a task -> function that brings its section to today's form.
        left_out: Package of a task -> function that states what its section leaves to defaults
            that were others of old.

    Returns:
        The values, and one clause for each translation.

    Raises:
        UserError: A field is given under its old and its new name.

    >>> old = {"rl": {"engine": {"name": "vllm"}}}
    >>> migrate(old, {}, renames={"*.engine.name": "*.engine.kind"}).values
    {'rl': {'engine': {'kind': 'vllm'}}}

    """
    changed: dict[str, Any] = _copied(values)
    configs = {name: task.config for name, task in tasks.items()}
    changes: list[str] = []
    for old, new in renames.items():
        for names in list(_matches(changed, old.split("."))):
            now = _filled(old.split("."), new.split("."), names)
            if _is_renamed(configs.get(names[0]), names, now):
                changes += _rename(changed, names, now)
    for path, meanings in respelled.items():
        for names in list(_matches(changed, path.split("."))):
            changes += _respell(changed, names, meanings)
    for path, reason in gone.items():
        for names in list(_matches(changed, path.split("."))):
            del _at(changed, names[:-1])[names[-1]]
            changes.append(f"{_dotted(names)} is left out, {reason}")
    for name, task in tasks.items():
        for table in (left_out, rewrites):
            if isinstance(changed.get(name), dict) and task.package in table:
                changes += table[task.package](changed[name], name)
    return Migrated(changed, tuple(changes))


def migrate_release(section: Mapping[str, Any]) -> Migrated:
    """Translate a recipe's `release` section, which is of no stage.

    It is translated in every format: there were versions that wrote today's and spelled it as of
    old, and no old name has got another meaning.

    Args:
        section: As read.

    Returns:
        The section under `release`, and what was translated.

    """
    return migrate({"release": dict(section)}, {})


def parse_recorded(task: Task, section: Mapping[str, Any], *, where: str) -> StageConfig:
    """Validate the parameters of a stage as an older version may have recorded them.

    Args:
        task: The stage's task.
        section: Its parameters.
        where: The stage, for errors.

    Returns:
        The task's config.

    Raises:
        UserError: Even in today's spelling they are no parameters of the task.

    """
    return task.config.parse(migrate({where: section}, {where: task}).values[where], where=where)


def read_format(given: object, *, where: str) -> int:
    """Read a recipe's `format`.

    Args:
        given: Its value; None where the recipe has none.
        where: The recipe, for errors.

    Returns:
        The number of the format, 1 where there is none.

    Raises:
        UserError: It is no format, or one that this version does not know yet.

    """
    if given is None:
        return 1
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise UserError(f"{where}: format: must be a whole number such as {FORMAT}, got {given!r}")
    if given > FORMAT:
        raise UserError(
            f"{where}: it is of format {given}, and this posttrain reads formats up to {FORMAT};"
            " install a newer posttrain"
        )
    return given


def _matches(values: Any, path: list[str]) -> Iterator[KeyPath]:
    """The paths in `values` that a path with wildcards stands for."""
    if not path:
        yield []
        return
    inner: Mapping[Any, Any] = {}
    if isinstance(values, Mapping):
        inner = values
    elif isinstance(values, list):
        inner = dict(enumerate(values))
    for name in inner if path[0] == "*" else inner.keys() & {path[0]}:
        for rest in _matches(inner[name], path[1:]):
            yield [name, *rest]


def _filled(old: list[str], new: list[str], names: KeyPath) -> KeyPath:
    """The new path, with what the wildcards of the old one stood for."""
    found = iter([name for part, name in zip(old, names, strict=True) if part == "*"])
    return [next(found) if part == "*" else part for part in new]


def _is_renamed(config: type[StageConfig] | None, old: KeyPath, new: KeyPath) -> bool:
    """True where a section's config has no such field, and has one that the new path begins in."""
    if config is None:
        return True
    return not _has_field(config, old[1:]) and _has_field(config, new[1:2])


def _has_field(annotation: Any, path: KeyPath) -> bool:
    if not path:
        return True
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(path[0])
        return field is not None and _has_field(field.annotation, path[1:])
    return any(_has_field(inner, path) for inner in get_args(annotation))


def _rename(values: dict[str, Any], old: KeyPath, new: KeyPath) -> Iterator[str]:
    place = _at(values, old[:-1])
    if not isinstance(place, dict):
        return
    value = place.pop(old[-1])
    target = _at(values, new[:-1], make=dict)
    if not isinstance(target, dict) or new[-1] in target:
        raise UserError(
            f"{_dotted(old)} is today called {_dotted(new)}, and the recipe gives both; leave the"
            " old one out"
        )
    target[new[-1]] = value
    yield f"{_dotted(old)} is now {_dotted(new)}"


def _respell(values: dict[str, Any], names: KeyPath, meanings: Mapping[Any, Any]) -> Iterator[str]:
    place: Any = _at(values, names[:-1])
    value = place[names[-1]]
    if isinstance(value, str | int | float | bool) and value in meanings:
        place[names[-1]] = meanings[value]
        yield f"{_dotted(names)}: {value} is now {meanings[value]}"


def _dotted(names: KeyPath) -> str:
    return ".".join(map(str, names))


def _at(values: Any, names: KeyPath, make: Callable[[], Any] | None = None) -> Any:
    for name in names:
        if isinstance(values, list) and isinstance(name, int):
            values = values[name]
        elif isinstance(values, dict):
            if make is not None:
                values.setdefault(name, make())
            values = values[name]
        else:
            return values
    return values


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value
