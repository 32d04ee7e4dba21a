"""`method: NAME` at the top of a recipe, and what the sections of a method come to."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.methods.find import find_method, methods_of
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
    for section, said in method.sets.items():
        if section not in tasks:
            raise UserError(
                f"method {method.name}: sets.{section}: there is no such section"
                f"{nearest(section, tasks)}"
            )
        found[section] = tasks[section].config.parse(
            task_parameters(said or {}), where=f"method {method.name}: sets.{section}"
        )
    return found


def task_parameters(said: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of a section what is no parameter of its task, such as `inputs`."""
    return {name: value for name, value in said.items() if name not in OF_EVERY_STAGE}
