"""Where methods are: a project's own folder first, those of its plug-ins, then what ships."""

import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from posttrain.methods.claim import Arena
from posttrain.methods.lay import laid_over
from posttrain.methods.method import FAMILIES, Method
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError, first_line, nearest, shown
from posttrain.stage.slots import installed_parts

FOLDER = "methods"
"""Of a project or of a package: `methods/<family>/<name>.yaml`."""

SHIPPED = Path(__file__).parent
"""The catalog that comes with posttrain."""

_SUFFIX = ".yaml"
_ANY = f"*{_SUFFIX}"
ARENAS = "arenas"
"""The folder of arenas, in that of methods: `methods/arenas/<name>.yaml`."""


class _OpenRecipe(NamedTuple):
    """What methods are looked for in, and who asks."""

    folders: tuple[Path, ...] = ()
    plugins: tuple[str, ...] = ()
    named: str = ""
    """The method that it says at the top."""


# As plug-ins are: of the recipes that are open, the last one counts.
_in_force: list[_OpenRecipe] = [_OpenRecipe()]

# YAML 1.2 as recipes have it, where 5e-4 is a number.
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


class FoundMethod(NamedTuple):
    """A method and the file that says it."""

    method: Method
    path: Path

    @property
    def shown(self) -> str:
        """The file, as a person would name it: from the catalog's folder where it ships."""
        if self.path.is_relative_to(SHIPPED):
            return f"posttrain/{FOLDER}/{self.path.relative_to(SHIPPED).as_posix()}"
        return shown(self.path)


@contextmanager
def methods_of(root: Path, plugins: Sequence[str] = (), *, named: str = "") -> Iterator[None]:
    """Let a project's own methods and those of its plug-ins be found while the context is open.

    Args:
        root: The project.
        plugins: Modules that its recipe names, which can be imported; the folder `methods` of the
            package of each is looked through.
        named: The method that its recipe says at the top, for `named_method`.

    """
    folders = (root / FOLDER, *_beside(plugins))
    _in_force.append(_OpenRecipe(folders, tuple(plugins), named))
    try:
        yield
    finally:
        _in_force.pop()


def named_method() -> str:
    """Name the method that the recipe says at the top, of which something is asked; maybe none."""
    return _in_force[-1].named


def plugins_of_project() -> tuple[str, ...]:
    """Name the plug-ins of the project whose methods are found, for recipes made of these."""
    return _in_force[-1].plugins


def own_folder(root: Path) -> Path:
    """The folder of a project's own methods; in a checkout of posttrain itself what ships."""
    return SHIPPED if root / "posttrain" / FOLDER == SHIPPED else root / FOLDER


def method_folders() -> list[Path]:
    """The folders in which methods are looked for, the first that has one of a name goes first."""
    points = dict.fromkeys(point.module for *_, point in installed_parts())
    folders = dict.fromkeys((*_in_force[-1].folders, *_beside([*points]), SHIPPED))
    return [each for each in folders if each.is_dir()]


def find_method(name: str, *, where: str = "") -> FoundMethod:
    """Find the method of a name.

    Args:
        name: As its file is called.
        where: The place that names it, for the error.

    Returns:
        The method, and where it is.

    Raises:
        UserError: There is none, or its file is wrong.

    """
    if file := _file(name, method_folders()):
        return _found(file)
    hint = nearest(name, method_names()) or "; posttrain method list names them all"
    raise UserError(f"{where}{': ' * bool(where)}there is no method '{name}'{hint}")


def line_of(name: str) -> list[FoundMethod]:
    """Find the method of a name and those that it is like: the undermost first, itself last."""
    found = find_method(name)
    return [*(line_of(found.method.like) if found.method.like else ()), found]


def has_method(name: str) -> bool:
    """Tell whether there is a method of that name; its file is not read."""
    return _file(name, method_folders()) is not None


def method_names() -> list[str]:
    """Name every method that there is, sorted; no file is read."""
    return sorted({name for folder in method_folders() for _, name in _said_in(folder)})


def every_method() -> dict[str, FoundMethod]:
    """Read every method that there is, by name, in the order of their families.

    Raises:
        UserError: A file is wrong.

    """
    found, faults = readable_methods()
    for fault in faults:
        raise fault
    return found


def readable_methods() -> tuple[dict[str, FoundMethod], list[UserError]]:
    """Read every method whose file can be read.

    Returns:
        The methods by name, as `every_method` orders them, and what is wrong with each other file.

    """
    found, faults, known = list[FoundMethod](), list[UserError](), set[str]()
    for folder in method_folders():
        own = sorted(_said_in(folder))
        for name in sorted({name for _, name in own} - known):
            known.add(name)
            try:
                found.append(_found(_only_file(name, folder, own)))
            except UserError as fault:
                faults.append(fault)
    return _by_family(found), faults


def _by_family(found: Iterable[FoundMethod]) -> dict[str, FoundMethod]:
    families = [*FAMILIES]
    ordered = sorted(found, key=lambda e: (families.index(e.method.family), e.method.name))
    return {each.method.name: each for each in ordered}


def find_arena(name: str, *, where: str = "") -> Arena:
    """Find the arena of a name: the project's own first.

    Args:
        name: As its file is called.
        where: The place that names it, for the error.

    Returns:
        The arena.

    Raises:
        UserError: There is none, or its file is wrong.

    """
    files = arena_files()
    if name not in files:
        hint = nearest(name, files) or f"; there are {', '.join(sorted(files))}"
        raise UserError(f"{where}{': ' * bool(where)}there is no arena '{name}'{hint}")
    state = files[name].stat()
    return _read_arena(files[name], state.st_mtime_ns, state.st_size)


def arena_files() -> Mapping[str, Path]:
    """The file of every arena, by its name."""
    folders = [folder / ARENAS for folder in reversed(method_folders())]
    return {file.stem: file for folder in folders for file in sorted(folder.glob("[!_.]*.yaml"))}


def _file(name: str, folders: Sequence[Path]) -> Path | None:
    for folder in folders:
        if own := sorted(each for each in _said_in(folder) if each[1] == name):
            return _only_file(name, folder, own)
    return None


def _only_file(name: str, folder: Path, said: Sequence[tuple[str, str]]) -> Path:
    """The file of a method, of those that are said in a folder."""
    files = [folder / family / f"{name}{_SUFFIX}" for family, each in said if each == name]
    if len(files) > 1:
        places = " and ".join(shown(file) for file in files)
        raise UserError(f"two files say the method '{name}': {places}; rename one of them")
    return files[0]


def _said_in(folder: Path) -> tuple[tuple[str, str], ...]:
    """Family and name of the methods of a folder, by the names of its files alone.

    It is asked for every algorithm that is named, so that files are listed again only where a
    family's folder has changed since.
    """
    with os.scandir(folder) as entries:
        seen = [(each.name, each.stat().st_mtime_ns) for each in entries if each.is_dir()]
    families = (each for each in sorted(seen) if each[0] != ARENAS and each[0][0] not in "_.")
    return _listed(folder, tuple(families))


@lru_cache(maxsize=256)
def _listed(folder: Path, families: tuple[tuple[str, int], ...]) -> tuple[tuple[str, str], ...]:
    # A name that begins with a dot is an editor's, of a file that may not be there.
    files = ((name, file) for name, _ in families for file in (folder / name).glob(_ANY))
    return tuple((family, file.stem) for family, file in files if file.name[0] != ".")


def _found(file: Path, above: tuple[str, ...] = ()) -> FoundMethod:
    """Read a method's file; what it says lies over the method that it is like."""
    state = file.stat()
    method = _read(file, state.st_mtime_ns, state.st_size)
    if not method.like:
        return FoundMethod(method, file)
    line = (*above, method.name)
    where = f"{shown(file)}: like"
    if method.like in line:
        raise UserError(f"{where}: {' is like '.join((*line, method.like))}; break the circle")
    under = _file(method.like, method_folders())
    if under is None:
        raise UserError(
            f"{where}: there is no method '{method.like}'{nearest(method.like, method_names())}"
        )
    sets = laid_over(_found(under, line).method.sets, method.sets)
    return FoundMethod(method.model_copy(update={"sets": sets}), file)


def _beside(modules: Sequence[str]) -> list[Path]:
    """The folders `methods` in the packages of some modules."""
    found = []
    for head in dict.fromkeys(module.partition(".")[0] for module in modules):
        spec = importlib.util.find_spec(head)
        places = spec.submodule_search_locations if spec else None
        found += [Path(place) / FOLDER for place in places or ()]
    return found


@lru_cache(maxsize=4096)
def _read(path: Path, _mtime: int, _size: int) -> Method:
    values = read_mapping(path, "a method")
    where = shown(path)
    method = _parsed(Method, values, where)
    for field, said in (("name", path.stem), ("family", path.parent.name)):
        if getattr(method, field) != said:
            raise UserError(
                f"{where}: {field}: the file's place says '{said}', and it says"
                f" '{getattr(method, field)}'; correct one of them"
            )
    return method


@lru_cache(maxsize=256)
def _read_arena(path: Path, _mtime: int, _size: int) -> Arena:
    arena = _parsed(Arena, read_mapping(path, "an arena"), shown(path))
    if arena.name != path.stem:
        raise UserError(f"{shown(path)}: name: the file is called {path.stem}; correct one of them")
    return arena


_Form = TypeVar("_Form", bound=StageConfig)


def _parsed(form: type[_Form], values: Mapping[str, Any], file: str) -> _Form:
    """Validate what a file says; a complaint names the file, then the place, a claim by its name.

    So does all else that is said of what stands in it: `FILE: claims.better.arena: ...`.
    """
    try:
        return form.parse(values, where=file)
    except UserError as error:
        told = str(error).removeprefix(file).lstrip(".: ")
        if (found := re.match(r"claims\.(\d+)", told)) is not None:
            claim = values["claims"][int(found[1])]
            if isinstance(claim, Mapping) and isinstance(claim.get("name"), str):
                told = f"claims.{claim['name']}{told.removeprefix(found[0])}"
        raise UserError(f"{file}: {told}") from None


def read_mapping(path: Path, what: str) -> dict[str, Any]:
    """Read a YAML file that holds a mapping, with the numbers of YAML 1.2.

    Args:
        path: The file.
        what: What it holds, for the error.

    Returns:
        The mapping.

    Raises:
        UserError: It is no YAML, says a key twice, or is something else.

    """
    import yaml

    loader: Any = type("Loader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
    loader.add_constructor("tag:yaml.org,2002:map", _said_once)
    yaml.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(f"^(?:{_FLOAT.pattern})$"), [*"-+0123456789."], loader
    )
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), loader)  # noqa: S506
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or first_line(error)
        raise UserError(f"{shown(path)}{line}: not valid YAML: {problem}") from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise UserError(f"{shown(path)}: {what} is a mapping that starts with 'name:'")
    return values


def _said_once(loader: Any, node: Any) -> Iterator[dict[Any, Any]]:
    """Make a mapping of which no key is said twice: of two the last would count, unseen."""
    import yaml

    made: dict[Any, Any] = {}
    yield made
    known = set[Any]()
    for key, _ in node.value:
        if key.value in known and key.tag != "tag:yaml.org,2002:merge":
            raise yaml.MarkedYAMLError(
                problem=f"'{key.value}' is said twice", problem_mark=key.start_mark
            )
        known.add(key.value)
    loader.flatten_mapping(node)
    made.update(loader.construct_mapping(node, deep=True))
