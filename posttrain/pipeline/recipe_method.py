"""`method: NAME` at the top of a recipe, and what the sections of a method come to."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.methods.find import find_method, has_method, line_of, methods_of
from posttrain.methods.method import Method
from posttrain.pipeline.flow import let_import
from posttrain.pipeline.recipe_values import RecipeValues
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError, nearest, shown
from posttrain.stage.spec import Task

OF_EVERY_STAGE = ("inputs", "resources", "seed_as", "declares")
"""Keys of a section that are no parameters of its task."""


def sets_of_method(
    file: Path, name: object, plugins: Sequence[str]
) -> dict[str, Mapping[str, Any]]:
    """Read what the method that a recipe names sets: it lies under the recipe's own sections.

    Args:
        file: The recipe, in whose project the method is looked for first.
        name: What it says as `method`; None where it names none.
        plugins: Modules that it names.

    Returns:
        Its settings by section; none where no method is named.

    Raises:
        UserError: There is no such method.

    """
    if name is None:
        return {}
    if not isinstance(name, str):
        raise UserError(f"{shown(file)}: method: write the name of one method, got {name!r}")
    root = project_of(file)
    let_import(root)
    with methods_of(root, plugins):
        return {key: value or {} for key, value in find_method(name).method.sets.items()}


def refuse_section_of_method(recipe: RecipeValues, section: str) -> None:
    """Refuse a section that no stage of the flow uses where only the recipe's method sets it."""
    if section in recipe.of_method.keys() - recipe.sections.keys():
        raise UserError(
            f"{shown(recipe.path)}: the method {recipe.method} sets {section}, and the flow"
            f" {recipe.flow} has no such stage; name a flow that has it, or another method"
        )


def layers_of_recipe(recipe: RecipeValues, *sections: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Give what the method of a recipe says of sections, by its place; see `layers_of_method`."""
    with methods_of(project_of(recipe.path), recipe.plugins):
        return [*layers_of_method(recipe.method, *sections)]


def project_of(file: Path) -> Path:
    """The nearest folder at or above a recipe that is a project, or the recipe's own."""
    folders = file.resolve().parents
    return next((each for each in folders if (each / ".dvc").is_dir()), folders[0])


def sections_of_method(method: Method, tasks: Mapping[str, Task]) -> dict[str, StageConfig]:
    """Resolve what a method sets, as if a recipe said nothing else.

    Args:
        method: The method.
        tasks: What each section of the flow's recipes is for.

    Returns:
        The config of each section that it sets.

    Raises:
        UserError: There is no such section; or what stands in it is refused.

    """
    found = {}
    place = place_of_method(method)
    for section, said in method.sets.items():
        where = f"{place}: sets.{section}"
        if section not in tasks:
            raise UserError(f"{where}: there is no such section{nearest(section, tasks)}")

        def parse(
            said: Mapping[str, Any], section: str = section, where: str = where
        ) -> StageConfig:
            return tasks[section].config.parse(task_parameters(said), where=where)

        try:
            found[section] = parse(said or {})
        except UserError as error:
            layers = layers_of_method(method.name, section)
            raise told_where_it_is_said(error, where, layers, parse) from None
    return found


def place_of_method(method: Method) -> str:
    """Name the file of a method; of one that has none, what it is called."""
    known = has_method(method.name)
    return find_method(method.name).shown if known else f"method {method.name}"


def layers_of_method(name: str, *sections: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Give what a method and those that it is like say of sections, by its place in their files.

    Args:
        name: The method; where there is none of that name, nothing is given.
        *sections: Names of sections.

    Yields:
        The place, as a person would name it, and what all say down to there; the undermost first.

    """
    for found in line_of(name) if has_method(name) else ():
        for section in sections:
            if said := found.method.sets.get(section):
                yield f"{found.shown}: sets.{section}", said


def told_where_it_is_said(
    error: UserError,
    where: str,
    layers: Iterable[tuple[str, Mapping[str, Any]]],
    make: Callable[[Mapping[str, Any]], object],
) -> UserError:
    """Blame the file that says it for what is refused of settings that were laid over each other.

    Args:
        error: What was said of all of them together.
        where: What its sentence begins with: their place in the recipe.
        layers: Place and settings of each, the undermost first.
        make: Refuses settings in such words.

    Returns:
        The same at the place of the first layer that is refused by itself in the very same words;
        where none is, and where it names another place, such as that of plug-ins, as it is.

    """
    if not str(error).startswith(where):
        return error
    for place, said in layers:
        try:
            make(said)
        except UserError as own:
            if str(own) == str(error):
                return UserError(place + str(error).removeprefix(where))
    return error


def task_parameters(said: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of a section what is no parameter of its task, such as `inputs`."""
    return {name: value for name, value in said.items() if name not in OF_EVERY_STAGE}
