"""Typed, frozen configuration, and the sentence that says what is wrong with it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from posttrain.stage.errors import UserError, nearest

Capability = Callable[[], tuple[int, int] | None]
"""Looks up a GPU's compute capability, (9, 0) of an H100; None stands for a CPU."""

_QUOTE = "'"
_LARGEST = 2**63 - 1
_CLOSE = 0.8
"""How alike two names are, of 1, of which one was meant that stands elsewhere."""


class _Unkeyed:
    """Type of `UNKEYED`."""

    def __repr__(self) -> str:
        return "UNKEYED"


UNKEYED = _Unkeyed()
"""Marks a field that changes no byte of any result: ``every: Annotated[int, UNKEYED] = 10``.

It is in no key, so that another value re-runs nothing.
"""


class StageConfig(BaseModel):
    """The parameters of one stage: frozen, fully typed, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    MECHANICS: ClassVar[frozenset[str]] = frozenset()
    """Fields that change how something is computed and not what: no part of the identity."""
    DEFAULTS_VERSION: ClassVar[int] = 1
    """Raised whenever the default of a field changes, so that identities keep their meaning."""

    BRIEF: ClassVar[bool] = False
    """True of parts of which an identity says the kind alone where nothing is set: those that were
    a plain word before they were parts, so that no method is called otherwise since."""

    PACKAGES: ClassVar[frozenset[str]] = frozenset()
    """Packages of posttrain's extras that a stage imports where this config is in its parameters.

    Such a package is in the keys of these stages alone: to others it may come and go.
    """

    PROGRAMS: ClassVar[Mapping[str, str]] = {}
    """Programs of the system that a stage starts for this config, with the line that installs each;
    `posttrain plan` and `posttrain doctor` look for them."""

    @classmethod
    def parse(cls, values: Mapping[str, Any], *, where: str) -> Self:
        """Validate values that a person wrote.

        Args:
            values: Fields by name.
            where: Path of the config in the recipe, such as `rl.algorithm`, for the error.

        Returns:
            The config.

        Raises:
            UserError: The first complaint, as `where.key` and the remedy.

        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise UserError(_sentence(cls, error, where)) from None

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_numbers(cls, values: Any) -> Any:
        """Refuse what pydantic would take for a number: `true`, and one that no table can hold."""
        if isinstance(values, Mapping):
            for name in _numeric(cls) & values.keys():
                _check_number(name, values[name])
        return values

    @classmethod
    def texts_of_fields(cls) -> Mapping[str, str]:
        """Say what each field means, by its name."""
        from posttrain.stage.descriptions import descriptions

        return descriptions(cls)

    @classmethod
    def schedulable(cls) -> set[str]:
        """Names of the fields in whose place a schedule may stand."""
        return set()

    def without_effect(self) -> frozenset[str]:
        """Fields that the value of another one switches off: no part of the identity either."""
        return frozenset()

    def keyed(self) -> dict[str, Any]:
        """The values, as JSON has them, without those of fields that change no byte."""
        return self.model_dump(mode="json", exclude=_unkeyed(self) or None)

    def packages(self) -> frozenset[str]:
        """Name the packages of extras that a stage imports for these values: `PACKAGES`, or more.

        Returns:
            Names as in a registry.

        """
        return self.PACKAGES

    def remarks(self) -> tuple[str, ...]:
        """Say what somebody should know of these values though they may well be meant.

        Returns:
            Sentences, for `posttrain plan` and for the stage's own notes.

        """
        return ()

    def check_names(self, where: str) -> None:
        """Refuse what only a library knows that there is not, such as a generator of problems.

        `posttrain plan` asks the stages that would run, as this may import the library.

        Args:
            where: The stage's section of the recipe, with which the sentence begins.

        Raises:
            UserError: With the nearest name.

        """

    def beyond_processes(self, processes: int) -> str | None:  # noqa: ARG002
        """Say which of these values so many processes cannot share, or cannot do without.

        The plan asks the stage's config and all within it.

        Args:
            processes: That share the stage.

        Returns:
            A sentence without its end, what to do in it; None where all can be had.

        """
        return None

    def beyond_device(self, capability: Capability) -> str | None:  # noqa: ARG002
        """Say which of these values the device cannot compute, and what to do.

        `posttrain plan` asks the stages that would run, with the device of the recipe.

        Args:
            capability: Asked where a value hangs on it alone, as looking imports torch.

        Returns:
            A sentence; None where it can.

        """
        return None

    def reaches(self) -> frozenset[str]:
        """Name what lies outside and is talked to: `hub`, `endpoint`; without one there is no TCP.

        Returns:
            Of these names; `processes` stands for further processes of this machine, to which a
            stage talks by TCP, and `sandbox` for programs that nobody has read: without TCP.

        """
        return frozenset()

    def secret_names(self) -> tuple[str, ...]:
        """Name the variables of the environment that hold keys; they count nowhere.

        Returns:
            Names of variables, never their values.

        """
        return ()

    def local_files(self) -> Mapping[str, str]:
        """Files that this config names, by name; the flow hands them to the task's `files` port."""
        return {}

    def read_files(self) -> tuple[str, ...]:
        """Files that this config, itself or within another, reads where they are.

        Returns:
            Paths from the recipe's folder on: declared for its stage, as if they stood under
            `reads`, and found by `posttrain.stage.declared.read_path`. `PACKAGE:PATH` is a file
            that a package ships (`posttrain.stage.declared.shipped_path`).

        """
        return ()


def _unkeyed(value: Any) -> dict[Any, Any]:
    """Which fields of a value are marked `UNKEYED`, at any depth, in pydantic's spelling."""
    found: dict[Any, Any] = {}
    inside: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        found = {name: True for name, field in fields.items() if UNKEYED in field.metadata}
        inside = ((name, getattr(value, name)) for name in fields.keys() - found.keys())
    elif isinstance(value, Mapping):
        inside = value.items()
    elif isinstance(value, list | tuple):
        inside = enumerate(value)
    return found | {name: below for name, each in inside if (below := _unkeyed(each))}


def configs_in(value: Any) -> Iterator[StageConfig]:
    """All configs in a value, at any depth, outer ones first."""
    if isinstance(value, StageConfig):
        yield value
    if isinstance(value, BaseModel):
        value = [getattr(value, name) for name in type(value).model_fields]
    elif isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from configs_in(each)


def refuse_processes(config: StageConfig, processes: int, *, where: str) -> None:
    """Refuse what cannot be had in as many processes as a stage has.

    Args:
        config: Of a stage; all configs within it are asked, too.
        processes: That share the stage.
        where: The stage's section of the recipe, with which the sentence begins.

    Raises:
        UserError: One of them says so (`StageConfig.beyond_processes`).

    """
    for each in configs_in(config):
        if why := each.beyond_processes(processes):
            raise UserError(f"{where}: {why}")


# Here and not beside its only user: what reads annotations hangs on the text of every function, and
# this module is in no key, as what a config says is in it by value.
def fields_that_take(config: type[BaseModel], *types: type) -> set[str]:
    """Find the fields whose values may be of one of some types.

    Args:
        config: Class of a config.
        types: Plain types, such as `int` and `float`.

    Returns:
        Names of the fields; null and other types beside them change nothing.

    """
    fields = config.model_fields.items()
    return {name for name, field in fields if _takes(field.annotation, *types)}


@cache
def _numeric(config: type[BaseModel]) -> set[str]:
    """Names of the fields that take a number and no truth value."""
    return fields_that_take(config, int, float) - fields_that_take(config, bool)


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool):
        said = f"it is a number, got {str(value).lower()}; write one"
    elif isinstance(value, int) and abs(value) > _LARGEST:
        said = "it has more than 64 bits; write a smaller number"
    else:
        return
    raise PydanticCustomError("no_number", "{said}", {"name": name, "said": said})


def _takes(annotation: Any, *types: type) -> bool:
    if annotation in types:
        return True
    is_union = get_origin(annotation) in (Union, UnionType, Annotated)
    return is_union and any(_takes(each, *types) for each in get_args(annotation))


def _sentence(config: type[BaseModel], error: ValidationError, where: str) -> str:
    """Turn pydantic's first complaint into one sentence with a path that the user typed.

    An unknown key goes before a missing one: often they are one name, mistyped.
    """
    errors = error.errors(include_url=False)
    first = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
    parts, keys = _place(config, first["loc"])
    path = ".".join([where, *parts])
    if first["type"] == "extra_forbidden":
        return f"{path}: unknown key{_meant(parts[-1], keys, config, where)}"
    if first["type"] == "in_part":
        return _sentence(first["ctx"]["config"], first["ctx"]["inner"], path)
    if first["type"] == "no_number":
        return f"{path}.{first['ctx']['name']}: {first['ctx']['said']}"
    if first["type"] == "missing":
        return f"{path}: a value is required here"
    if first["type"] == "model_type":
        return f"{path}: a mapping of {', '.join(keys)} stands here, got {first['input']!r}"
    if first["type"] == "union_tag_not_found":
        return f"{path}.{first['ctx']['discriminator'].strip(_QUOTE)}: a value is required here"
    if first["type"] == "union_tag_invalid":
        key, tag, known = (first["ctx"][n] for n in ("discriminator", "tag", "expected_tags"))
        return f"{path}.{key.strip(_QUOTE)}: must be one of {known}, got '{tag}'"
    if first["type"] in ("value_error", "assertion_error"):
        return f"{path}: {first['ctx']['error']}"
    if first["type"] in ("int_type", "float_type") and isinstance(first["input"], Mapping):
        return (
            f"{path}: this number takes no schedule, as it is read once, before the first step;"
            " write a plain number (`posttrain parts schedule` lists the numbers that take one)"
        )
    if first["type"].startswith(("int_", "float_")) and parts[-1] in ("int", "float"):
        # Where a field takes both, pydantic adds the type that it tried first.
        return f"{'.'.join([where, *parts[:-1]])}: input should be a number, got {first['input']!r}"
    return f"{path}: {first['msg'][:1].lower()}{first['msg'][1:]}, got {first['input']!r}"


def _place(config: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[list[str], list[str]]:
    """Find where a complaint is, as the user typed it, and the keys that are valid at its end.

    In a union of models pydantic adds the tag that chose one; nobody typed that as a key.
    """
    path: list[str] = []
    models = [config]
    for part in loc:
        fields = [model.model_fields[part] for model in models if part in model.model_fields]
        if not fields and len(models) > 1 and (chosen := [m for m in models if part in _tags(m)]):
            models = chosen
            continue
        if not fields and str(part).startswith("constrained-"):
            continue  # of a field that takes a number or a word, the number
        if fields:
            models = [model for field in fields for model in _models(field.annotation)]
        path.append(str(part))
    return path, [name for model in models for name in model.model_fields]


def _within(config: type[BaseModel]) -> dict[str, str]:
    """Find the fields of the configs within a config: the shortest path to each name."""
    found: dict[str, str] = {}
    level, known = [("", config)], {config}
    while level:
        below = []
        for before, model in level:
            for name, field in model.model_fields.items():
                if before:
                    found.setdefault(name, f"{before}{name}")
                new = [each for each in _models(field.annotation) if each not in known]
                known |= {*new}
                below += [(f"{before}{name}.", each) for each in new]
        level = below
    return found


def _meant(name: str, keys: list[str], config: type[BaseModel], where: str) -> str:
    """Suggest a key: of this very name elsewhere, else of nearly this name here or elsewhere."""
    within = {other: path for other, path in _within(config).items() if other != "kind"}
    if name not in within and (near := nearest(name, keys)):
        return near
    close = name if name in within else next(iter(get_close_matches(name, within, 1, _CLOSE)), None)
    return f"; did you mean '{where}.{within[close]}'?" if close else ""


def _tags(model: type[BaseModel]) -> set[object]:
    """The values of a model's Literal fields, by one of which a union may choose it."""
    literals = (f.annotation for f in model.model_fields.values())
    return {tag for each in literals if get_origin(each) is Literal for tag in get_args(each)}


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models inside `Model`, `Model | None`, `tuple[One | Other, ...]` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for arg in get_args(annotation) for model in _models(arg)]
