"""What is wrong with a part that came from outside, said before any stage starts if it can be."""

import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partialmethod
from pathlib import Path
from sysconfig import get_paths
from types import FunctionType
from typing import Any, Generic, Literal, get_args, get_origin

from pydantic import BaseModel

from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError, nearest, shown

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def complaint_about(
    part: object, kind: str, base: type[StageConfig], one_of: tuple[str, ...] = ()
) -> str | None:
    """Find out why a class cannot stand in a slot under a kind.

    Args:
        part: What a plug-in or a package offers.
        kind: The kind under which it does.
        base: The `Part` that those of the slot derive from.
        one_of: Methods of which a part implements at least one.

    Returns:
        What it is, with the file and the remedy; None where nothing is wrong with it.

    """
    if not (isinstance(part, type) and issubclass(part, base)):
        if isinstance(part, base):
            return f"{part!r}, which is no class; give the class itself, without parentheses"
        return f"{part!r}, which does not derive from {_full_name(base)}; derive it from that"
    return _complaint_about_class(part, kind, base, one_of)


def complaint_about_started(made: object, base: type[Any]) -> str | None:
    """Find out why what a part started cannot be used.

    Args:
        made: What its `start` returned.
        base: The class that it must derive from.

    Returns:
        What it is, with the file and the remedy; None where nothing is wrong with it.

    """
    if not isinstance(made, base):
        return f"{made!r:.60}; let it give an object of a class derived from {_full_name(base)}"
    owner = type(made)
    wrong = _left_abstract(owner) or next(_unlike(owner, base), None)
    return f"{owner.__name__} in {place_of(owner)}, {wrong}" if wrong else None


def where_it_failed(error: BaseException) -> str:
    """Say what an import ended with, and in which line of the code outside of libraries.

    Args:
        error: What the import raised.

    Returns:
        `TypeName: message (file:line)`.

    """
    name = type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{name}: {error.msg} ({shown(Path(str(error.filename)))}:{error.lineno})"
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename[0] != "<"]
    libraries = tuple(get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
    own = [each for each in frames if not each.filename.startswith(libraries)] or frames
    # Where it was given what it cannot take, the line to correct is the one that gave it.
    ours = str(Path(__file__).parents[1])
    own = [each for each in own if not each.filename.startswith(ours)] or own
    place = f" ({shown(Path(own[-1].filename))}:{own[-1].lineno})" if own else ""
    return f"{name}: {error}{place}"


def check_declared(found: Iterable[str], declared: Mapping[str, str], *, part: str) -> None:
    """Refuse figures that a part gives without a word about them, so that nothing can follow them.

    Args:
        found: Names of the figures.
        declared: The part's `METRICS`.
        part: Slot and kind, for the error.

    Raises:
        UserError: A name is not declared.

    """
    for name in found:
        if name not in declared:
            raise UserError(
                f"{part} measures '{name}', which its METRICS does not declare"
                f"{nearest(name, declared) or '; add it there'}"
            )


def place_of(part: type[Any]) -> str:
    """Name the file of a class, as a person in the present folder would; else its module."""
    try:
        return shown(Path(inspect.getfile(part)))
    except (OSError, TypeError):
        return part.__module__


@cache
def _complaint_about_class(
    part: type[Any], kind: str, base: type[StageConfig], one_of: tuple[str, ...]
) -> str | None:
    missing = _missing(part, base, one_of) or _left_abstract(part)
    wrong = missing or _misnamed(part, kind) or next(_unlike_any(part, base), None)
    return f"{part.__name__} in {place_of(part)}, {wrong}" if wrong else None


def _missing(part: type[Any], base: type[Any], names: tuple[str, ...]) -> str | None:
    """Say which methods are left to the part, where it has none of them."""
    if not names or any(_found(part, name) is not _found(base, name) for name in names):
        return None
    wanted = [f"{name}{_signature(_found(base, name))}" for name in names]
    own = [name for name, value in vars(part).items() if callable(value) and name[0] != "_"]
    meant = next((name for name in own if nearest(name, names)), None)
    written = "write it" if len(names) == 1 else "write one of them"
    remedy = f"rename its {meant}" if meant else written
    return f"which does not implement {' or '.join(wanted)}; {remedy}"


def _left_abstract(owner: type[Any]) -> str | None:
    """Say which method is left to a class, of those that every one of its kind must have."""
    names = dict.fromkeys(name for each in owner.__mro__ for name in vars(each))
    lacking = [n for n in names if getattr(_found(owner, n), "__isabstractmethod__", False)]
    return next((_missing(owner, owner, (name,)) for name in lacking), None)


def _misnamed(part: type[Any], kind: str) -> str | None:
    field = part.model_fields["kind"]
    kinds = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    if kind in (kinds or (field.default,)):
        return None
    return f'whose `kind` is not \'{kind}\'; write kind: Literal["{kind}"] = "{kind}" in it'


def _unlike_any(part: type[Any], base: type[Any]) -> Iterator[str]:
    """Say what `_unlike` says of the slot's base, and of each below it that leaves methods open."""
    for each in part.__mro__[1:]:
        if each is base or (issubclass(each, base) and getattr(each, "__abstractmethods__", None)):
            yield from _unlike(part, each)


def _unlike(part: type[Any], base: type[Any]) -> Iterator[str]:
    """Say which methods cannot be called as those of the base are."""
    foreign = {*BaseModel.__mro__, Generic}
    bases = [each for each in base.__mro__ if each not in foreign]
    names = [name for each in bases for name in vars(each) if name[0] != "_"]
    for name in dict.fromkeys(names):
        theirs, ours = _found(part, name), _found(base, name)
        if theirs is ours or not (callable(ours) or isinstance(ours, property | classmethod)):
            continue
        if _sort(theirs) is not _sort(ours):
            yield f"whose {name} is no {type(ours).__name__}; write it as in {base.__name__}"
        elif not isinstance(ours, property) and not _fits(theirs, ours):
            signature = f"{name}{_signature(ours)}"
            yield f"whose {name} takes other arguments; define it as {signature}"


def _full_name(owner: type[Any]) -> str:
    return f"{owner.__module__}.{owner.__name__}"


def _found(owner: type[Any], name: str) -> Any:
    return inspect.getattr_static(owner, name, None)


def _sort(member: Any) -> type[Any]:
    """Tell how a member is used, whatever wraps it: called, and on what, or read as a value."""
    if isinstance(member, classmethod | staticmethod):
        return type(member)
    return FunctionType if callable(member) or isinstance(member, partialmethod) else property


def _fits(theirs: Any, ours: Any) -> bool:
    """Call one method as the other may be called, with and without what has a default."""
    try:
        signature = inspect.signature(_function(theirs))
    except (TypeError, ValueError):  # Written in C, or a partial method: nothing can be said.
        return True
    asked = inspect.signature(_function(ours)).parameters.values()
    needed = [each for each in asked if each.default is each.empty]
    try:
        for given in (needed, list(asked)):
            named = {each.name: each for each in given if each.kind is each.KEYWORD_ONLY}
            signature.bind(*[each for each in given if each.kind in _POSITIONAL], **named)
    except TypeError:
        return False
    return True


def _signature(method: Any) -> str:
    """Spell the arguments of a method, without their types."""
    parameters = list(inspect.signature(_function(method)).parameters.values())[1:]
    bare = [each.replace(annotation=each.empty) for each in parameters]
    return str(inspect.Signature(bare))


def _function(method: Any) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(method, "__func__", method)
    return function
