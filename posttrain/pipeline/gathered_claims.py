"""What is known of claims: of methods, and of those that a recipe names."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.methods.find import (
    FoundMethod,
    every_method,
    find_method,
    has_method,
    methods_of,
)
from posttrain.methods.method import FAMILIES
from posttrain.pipeline.recipe_values import RecipeValues
from posttrain.pipeline.verdicts import gone_of_project, kept_verdicts, standing_verdicts
from posttrain.views.report.claims import ClaimFigure, ClaimRow


def claim_rows(methods: Sequence[FoundMethod], root: Path | None) -> list[ClaimRow]:
    """Gather what is known of every claim.

    Args:
        methods: Whose claims.
        root: The project, to tell which verdicts are stale, and of commits that its history has
            not; None does not look.

    Returns:
        A row each, by family, method and the order in its file.

    """
    kept = kept_verdicts()
    standing = standing_verdicts(methods, root) if root else {}
    gone = gone_of_project(kept.values(), root) if root else frozenset()
    families = list(FAMILIES)
    by_family = sorted(methods, key=lambda each: families.index(each.method.family))
    rows = []
    for found in by_family:
        for claim in found.method.claims:
            said = (found.method.family, found.method.name, claim.name, claim.says, claim.arena)
            known = kept.get((found.method.name, claim.name))
            compared = tuple(
                f"{'than ' * (each.than is not None)}{each.compared_with(claim.against)}"
                for each in claim.decide
            )
            if known is None:
                rows.append(ClaimRow(*said, compared=compared))
                continue
            row = ClaimRow(
                *said,
                verdict=known.verdict,
                stale=standing.get((known.method, known.claim), "").startswith("stale"),
                sentence=known.sentence,
                figures=tuple(map(ClaimFigure.read, known.decisions)),
                compared=compared,
                seeds=known.seeds,
                minutes=known.minutes,
                commit=known.commit or None,
                rechecked=known.rechecked or None,
                gone=tuple(at for at in known.commits if at in gone),
            )
            rows.append(row)
    return rows


def claims_of_recipe(recipe: RecipeValues, root: Path) -> list[ClaimRow]:
    """Gather what is known of the claims of the methods that a recipe names.

    Args:
        recipe: One that names a method at its top, or algorithms in its sections; in the recipe of
            a claim that claim's own method is named too.
        root: The project.

    Returns:
        A row each, by family; none where what is named claims nothing.

    """
    names: list[Any] = [recipe.method]
    if recipe.is_of_claim:
        names.append(recipe.name.partition(".")[0])
    for section in recipe.sections.values():
        said = section.get("algorithm")
        names.append(said.get("preset") if isinstance(said, Mapping) else said)
    with methods_of(root, recipe.plugins):
        named = [name for name in dict.fromkeys(filter(None, names)) if has_method(name)]
        claiming = [each for each in map(find_method, named) if each.method.claims]
        return claim_rows(claiming, root) if claiming else []


def claims_of_project(root: Path) -> tuple[list[ClaimRow], Mapping[str, str]]:
    """Gather what is known of the claims of every method of a project.

    Args:
        root: The project.

    Returns:
        A row each, and what each family of methods is about.

    """
    with methods_of(root):
        return claim_rows([*every_method().values()], root), FAMILIES
