"""All generated pages of the reference, by their place in the site, and their navigation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docs.hooks.method_pages import method_pages
from docs.hooks.stage_pages import part_pages, recipe_page, stage_pages
from docs.hooks.table_pages import tables_page
from docs.hooks.verb_pages import verb_pages
from posttrain.pipeline.slots import SLOTS

_INDEX = """# Reference

Written from the code and the catalog whenever the site is built: nothing here can be of another
version than they.

- [Recipes](recipes.md): what a recipe says beside its stages
- [Stages](stages/index.md): inputs, outputs and every field of each kind of stage
- [Slots and their parts](parts/index.md): what may stand where a field takes one of several methods
- [Methods](methods/index.md): each published method with formula, source, claims and switches
- [Tables and artifacts](tables.md): the columns of every table
- [Command line](cli/index.md): every verb with its options
"""
_FOLDERS = {
    "Stages": "reference/stages",
    "Slots and parts": "reference/parts",
    "Methods": "reference/methods",
    "Command line": "reference/cli",
}
_ABOVE_METHODS = "reference/methods/family"


def pages(root: Path) -> dict[str, str]:
    """Write the whole reference.

    Args:
        root: The repository.

    Returns:
        Markdown by place in the site.

    """
    return {
        "reference/index.md": _INDEX,
        "reference/recipes.md": recipe_page(),
        "reference/tables.md": tables_page(root),
        **dict(stage_pages(root)),
        **dict(part_pages()),
        **dict(method_pages(root)),
        **dict(verb_pages()),
    }


def pages_of_code(root: Path) -> dict[str, str]:
    """Say which files and folders have a page, so that a link to the code leads to that.

    Args:
        root: The repository.

    Returns:
        Page by file or folder.

    """
    found = {
        "tasks": "reference/stages/index.md",
        "posttrain/cli": "reference/cli/index.md",
        "posttrain/methods": "reference/methods/index.md",
        "posttrain/pipeline/slots.py": "reference/parts/index.md",
        "posttrain/data/schemas.py": "reference/tables.md",
    }
    for folder in sorted((root / "tasks").glob("*/config.py")):
        name = folder.parent.name
        found[f"tasks/{name}"] = f"reference/stages/{name}.md"
    for slot, place in SLOTS.items():
        folders = place.partition(":")[0].split(".")[:-1]
        found["/".join(folders)] = f"reference/parts/{slot}.md"
    return found


def navigation(made: Mapping[str, str]) -> list[Any]:
    """Lay out the reference; a method's page is reached by its family's, as there are so many.

    Args:
        made: What `pages` wrote.

    Returns:
        Entries as `nav` of mkdocs.yml has them.

    """
    sections = []
    for title, folder in _FOLDERS.items():
        shown = _ABOVE_METHODS if title == "Methods" else folder
        inside = [page for page in made if page.rpartition("/")[0] == shown]
        own = [page for page in inside if not page.endswith("index.md")]
        if title == "Methods":
            own.append("reference/methods/arenas.md")
        sections.append({title: [f"{folder}/index.md", *own]})
    plain = ["reference/index.md", {"Recipes": "reference/recipes.md"}]
    return [*plain, *sections, {"Tables": "reference/tables.md"}]
