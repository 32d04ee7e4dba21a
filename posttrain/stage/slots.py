"""How a method enters: a part is a frozen config that knows its kind, a slot a place for parts.

The parts that ship with posttrain stand in literal dicts, in modules called `registry`. A recipe's
`plugins` name modules whose `PARTS` add to them, `{"component": {"mine": Mine}}`; an installed
package does it by an entry point of the group `posttrain.parts` called `component.mine`. A kind is
looked for in that order, and nothing is imported that no recipe names.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import (
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from posttrain.stage.config import StageConfig, configs_in
from posttrain.stage.errors import UserError, nearest

ENTRY_POINTS = "posttrain.parts"
"""The entry-point group by which installed packages offer parts, as `slot.kind`."""


class Part(StageConfig):
    """A frozen config that knows its `kind`, and holds the formula that it configures.

    The first sentence of a part's docstring is what `posttrain parts` prints of it. Whatever is
    heavy (torch, transformers) is imported inside of the methods: a recipe is parsed without it.
    """

    SOURCE: ClassVar[str] = ""
    """Where the formula is from: paper and equation, or code at a commit."""
    NEEDS: ClassVar[frozenset[str]] = frozenset()
    """What the part must be given beside its arguments (`values`, `reference`, ...)."""

    kind: str
    """Which part of its slot this is."""

    def functions(self) -> tuple[str, ...]:
        """Name functions of the project that are called, as `module:name`: they are in the key."""
        return ()


P = TypeVar("P", bound=Part)
Plugins = Mapping[str, Mapping[str, type[Part]]]

# Of the recipes that are open, the last one's plug-ins count, in every thread of the process.
_in_force: list[Callable[[], Plugins]] = []

# Slots by name, each there once its registry is imported.
_known: "dict[str, Slot[Any]]" = {}


@dataclass(frozen=True)
class Slot(Generic[P]):
    """A place for parts of one `base`; `parts` are those that ship with posttrain, by kind."""

    name: str
    base: type[P]
    parts: Mapping[str, type[P]]
    one_of: tuple[str, ...] = ()
    """Methods of the base of which every part implements at least one. They stand here, and not in
    the base, as the code of the base is in the keys of stages and in the digests of verifiers."""

    def __post_init__(self) -> None:
        _known[self.name] = self

    def find(self, kind: str) -> type[P]:
        """Find the part of a kind: shipped, of a plug-in in force, or of an installed package.

        Args:
            kind: Its name, unique in the slot.

        Returns:
            The part's class.

        Raises:
            ValueError: Nobody offers the kind; or what is offered is no part of this slot.

        """
        if kind in self.parts:
            return self.parts[kind]
        part = self._plugged().get(kind) or self._installed(kind)
        if part is None:
            offered = [*self.parts, *self._plugged()]
            known = (
                f"; take {', '.join(sorted(offered))}, or name the module that offers it under"
                " `plugins`"
            )
            # One that is near may be a slip, or the kind of a part of one's own.
            if near := nearest(kind, offered):
                known = f"{near} If a plug-in offers '{kind}', name its module under `plugins`"
            hint = _offered_elsewhere(kind) or known
            raise ValueError(f"there is no {self.name} '{kind}'{hint}")
        if complaint := self.complaint(kind, part):
            raise ValueError(complaint)
        return part

    def has(self, kind: str) -> bool:
        """Tell whether a kind ships or is of a plug-in in force; no installed package is asked."""
        return kind in self.parts or kind in self._plugged()

    def complaint(self, kind: str, part: object) -> str | None:
        """Say why something cannot stand here, such as a class without the slot's method.

        Args:
            kind: The kind under which it is offered.
            part: What is offered.

        Returns:
            One sentence with slot, kind, file and remedy; None where it can.

        """
        from posttrain.stage.part_checks import complaint_about

        wrong = complaint_about(part, kind, self.base, self.one_of)
        return f"{self.name}.{kind} is {wrong}" if wrong else None

    def parse(self, value: Any) -> P:
        """Read a part from `"kind"`, from `{"kind": ..., **fields}`, or take it as it is.

        Args:
            value: What stands in the recipe, or a part.

        Returns:
            The part, validated.

        Raises:
            ValueError: It is neither, or nobody offers the kind.
            PydanticCustomError: A field is wrong; `StageConfig.parse` makes a sentence of it.

        """
        if isinstance(value, self.base):
            return value
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
            example = f", such as '{next(iter(self.parts))}'," if self.parts else ""
            raise ValueError(
                f"write the kind of {self.name}{example} or a mapping with `kind` and its settings;"
                f" got {value!r}"
            )
        part = self.find(value["kind"])
        try:
            return part.model_validate(dict(value))
        except ValidationError as error:
            # `StageConfig.parse` makes one sentence of both, with the whole path in it.
            context = {"config": part, "inner": error}
            raise PydanticCustomError("in_part", "{inner}", context) from None

    def offered(self) -> dict[str, type[P]]:
        """All parts that a recipe may name now, by kind; broken ones are left out."""
        found = dict(self.parts)
        for kind in (
            *self._plugged(),
            *(k for slot, k, _ in installed_parts() if slot == self.name),
        ):
            try:
                found[kind] = self.find(kind)
            except (ValueError, UserError):
                continue
        return found

    def parse_named(self, values: Mapping[str, Any]) -> dict[str, P]:
        """Read parts by name, as `parse` does each; what is wrong is said with its name."""
        annotation: Any = dict[str, Annotated[Part, InSlot(self)]]
        parts: dict[str, P] = TypeAdapter(annotation).validate_python(values)
        return parts

    def _plugged(self) -> Mapping[str, type[Any]]:
        return _in_force[-1]().get(self.name, {}) if _in_force else {}

    def _installed(self, kind: str) -> type[Any] | None:
        points = [each for *name, each in installed_parts() if name == [self.name, kind]]
        if len({point.value for point in points}) > 1:
            places = " and ".join(sorted(point.value for point in points))
            raise ValueError(
                f"several installed packages offer the {self.name} '{kind}': {places}; uninstall"
                " all but one of them"
            )
        return load_part(points[0]) if points else None


class InSlot:
    """Makes a config's field a place for parts: `Annotated[Component, InSlot(COMPONENTS)]`.

    A room below that of the slot names it: `InSlot("verifier")`. The slot's registry must then be
    imported before the config is parsed, as the task does whose config holds it.
    """

    def __init__(self, slot: Slot[Any] | str) -> None:
        self._slot = slot

    @property
    def slot(self) -> Slot[Any]:
        """The slot itself.

        Raises:
            ValueError: It is named, and no registry of that name was imported.

        """
        if isinstance(self._slot, Slot):
            return self._slot
        if self._slot not in _known:
            known = nearest(self._slot, _known)
            raise ValueError(
                f"the registry of the slot '{self._slot}' is not imported{known};"
                " import it in the module of the task whose config has this field"
            )
        return _known[self._slot]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Parse by the slot; serialize by the part's own class."""
        return core_schema.no_info_plain_validator_function(lambda value: self.slot.parse(value))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe the kinds and fields of the parts that are offered now."""
        from posttrain.stage.part_schema import schema_of_part

        return schema_of_part(self.slot.offered(), handler)


@contextmanager
def plugged(plugins: Sequence[str] | Callable[[], Plugins]) -> Iterator[None]:
    """Let the parts of plug-ins be found while the context is open, in all threads.

    Args:
        plugins: Names of modules with `PARTS`: slot -> kind -> part; or what gives such a mapping.
            They are imported, or it is called, when a kind is looked for that does not ship with
            posttrain: what no parameter names does not run.

    """
    found = plugins if callable(plugins) else lambda: parts_of_modules(plugins)
    _in_force.append(cache(found))
    try:
        yield
    finally:
        _in_force.pop()


def parts_of_modules(modules: Sequence[str], *, where: str = "plugins") -> Plugins:
    """Import plug-ins, and return what they offer.

    Args:
        modules: Importable names, each of a module with `PARTS`: slot -> kind -> part.
        where: Place in the recipe, for errors.

    Returns:
        Slot -> kind -> part.

    Raises:
        UserError: A module is not there, cannot be imported, or offers a kind that another does.

    """
    offered: dict[str, dict[str, type[Part]]] = {}
    for name in modules:
        for slot, parts in _parts_of(name, where).items():
            known = offered.setdefault(slot, {})
            for kind, part in parts.items():
                if kind in known:
                    raise UserError(
                        f"{where}: two of the modules offer the {slot} '{kind}'; rename the kind in"
                        " one of them"
                    )

                known[kind] = part
    return offered


def installed_parts() -> list[tuple[str, str, EntryPoint]]:
    """List slot, kind and entry point of all that installed packages offer; none is imported."""
    # Asking all packages takes 20 ms, and a plan wants it 60 times.
    path = tuple(sys.path)
    if path not in _points:
        offered = entry_points(group=ENTRY_POINTS)
        _points[path] = sorted(offered, key=lambda point: point.name)
    return [(*_slot_and_kind(point), point) for point in _points[path]]


_points: dict[tuple[str, ...], list[EntryPoint]] = {}
"""What installed packages offer, by `sys.path`."""


def package_offering(point: EntryPoint) -> str:
    """Name the package of an entry point, with its version."""
    return f"package {point.dist.name} {point.dist.version}" if point.dist else "package"


def load_part(point: EntryPoint) -> type[Any]:
    """Import the part that an installed package offers.

    Args:
        point: Its entry point.

    Returns:
        What stands there: a part's class, if the package is right.

    Raises:
        UserError: It cannot be imported; the package is named.

    """
    try:
        loaded: type[Any] = point.load()
    except Exception as error:
        from posttrain.stage.part_checks import where_it_failed

        raise UserError(
            f"the installed {package_offering(point)} offers the part '{point.name}', which cannot"
            f" be imported from {point.value}: {where_it_failed(error)}; upgrade or uninstall it"
        ) from error
    return loaded


def function_named(name: str) -> Callable[..., Any]:
    """Import `module:name` of the project, which a part names among its `functions`."""
    module, _, attribute = name.partition(":")
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(f"there is no {name}: {error}; correct it, or write it there") from None
    return function


def name_of(part: Part) -> str:
    """Name a part by its slot and its kind, such as `component.verifier`."""
    slots = [slot.name for slot in _known.values() if isinstance(part, slot.base)]
    return ".".join([*slots[:1], part.kind])


def parts_in(value: Any) -> Iterator[Part]:
    """All parts in a config, at any depth, outer ones first."""
    return (each for each in configs_in(value) if isinstance(each, Part))


def _parts_of(name: str, where: str) -> Plugins:
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        from posttrain.stage.part_checks import where_it_failed

        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            said = f" (write it without .py: {name[:-3]})" if name.endswith(".py") else ""
            wrong = (
                f"is not there ({error}); correct its name{said}, or put it at the root of the"
                " project"
            )
        else:
            wrong = f"cannot be imported: {where_it_failed(error)}; correct that line"
        raise UserError(f"{where}: the module '{name}' {wrong}") from error
    parts = getattr(module, "PARTS", None)
    if not (isinstance(parts, Mapping) and all(isinstance(v, Mapping) for v in parts.values())):
        wrong = "has no PARTS" if parts is None else "has PARTS in another form"
        raise UserError(
            f"{where}: the module '{name}' {wrong}; end it with a mapping like"
            ' PARTS = {"component": {"my_kind": MyClass}}'
        )
    for key in (*parts, *(kind for each in parts.values() for kind in each)):
        if not isinstance(key, str):
            raise UserError(
                f"{where}: PARTS of the module '{name}' has the key {key!r}; slots and kinds are"
                ' named by strings, as in {"component": {"my_kind": MyClass}}'
            )
    return parts


def _slot_and_kind(point: EntryPoint) -> tuple[str, str]:
    slot, _, kind = point.name.partition(".")
    return slot, kind


def _offered_elsewhere(kind: str) -> str:
    """Name a plug-in or a package that offers such a kind for another slot, as a hint."""
    plugged = _in_force[-1]() if _in_force else {}
    if slots := [slot for slot, parts in plugged.items() if kind in parts]:
        return f"; the PARTS of `plugins` offer it for the slot '{slots[0]}', so correct that name"
    found = [point for _, name, point in installed_parts() if name == kind]
    return f"; the {package_offering(found[0])} offers it as '{found[0].name}'" if found else ""
