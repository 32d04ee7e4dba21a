"""Write the examples of docs/extending.md anew: python tests/extend/write_extending.py."""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "extending.md"
MARK = "<!-- From here on written by tests/extend/write_extending.py. -->\n"


def examples() -> str:
    """Every slot with its place in the package, and its example."""
    from posttrain.pipeline.slots import SLOTS

    sections = []
    for slot, place in SLOTS.items():
        file = Path(__file__).parent / "plugins" / f"my_{slot}.py"
        if not file.is_file():
            continue
        said = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n\n")[0]
        purpose = " ".join(said.split()).partition(". ")[0].partition("; ")[0].rstrip(".:")
        registry = place.partition(":")[0].replace(".", "/") + ".py"
        shipped = registry.rpartition("/")[0]
        article = "an" if slot[0] in "aeiou" else "a"
        sections.append(
            f"## To add {article} {slot.replace('_', ' ')}\n\n{purpose}. Those that ship stand in"
            f" [`{shipped}/`](../{shipped}), their list in `{registry}`.\n\n"
            f"`my_{slot}.py`:\n\n```python\n{file.read_text()}```\n"
        )
    folder = Path(__file__).parent / "plugins" / "my_artifact_kind"
    files = [folder / "__init__.py", folder / "stage.py"]
    blocks = [f"`my_artifact_kind/{f.name}`:\n\n```python\n{f.read_text()}```\n" for f in files]
    said = "A kind of artifact is no part: it stands on a port of a task of one's own."
    sections.append("\n".join([f"## To add an artifact kind\n\n{said}\n", *blocks]))
    return "\n".join(sections)


def document() -> str:
    """The document with today's examples."""
    return DOCUMENT.read_text().partition(MARK)[0] + MARK + "\n" + examples()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    DOCUMENT.write_text(document())
