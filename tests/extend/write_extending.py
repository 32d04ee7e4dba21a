"""Write the examples and contracts of docs/extending.md: python tests/extend/write_extending.py."""

import ast
import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "extending.md"
MARK = "<!-- From here on written by tests/extend/write_extending.py. -->\n"


def examples() -> str:
    """Every slot with its place in the package, its example, and what a part of it implements."""
    from posttrain.pipeline.slots import SLOTS, find_slot

    sections, spoken_of = [], {}
    for slot, place in SLOTS.items():
        file = Path(__file__).parent / "plugins" / f"my_{slot}.py"
        said = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n\n")[0]
        purpose = " ".join(said.split()).partition(". ")[0].partition("; ")[0].rstrip(".:")
        registry = place.partition(":")[0].replace(".", "/") + ".py"
        shipped = registry.rpartition("/")[0]
        article = "an" if slot[0] in "aeiou" else "a"
        found = find_slot(slot)
        own = classes_of(found.base)
        for each in own:
            spoken_of |= classes_named(each)
        sections.append(
            f"## To add {article} {slot.replace('_', ' ')}\n\n{purpose}. Those that ship stand in"
            f" [`{shipped}/`](../{shipped}), their list in `{registry}`.\n\n"
            f"`my_{slot}.py`:\n\n{code(file.read_text())}\n"
            f"What a part implements ({must(found.one_of, found.base)}), and what it is given:\n\n"
            f"{code(*map(stub, own))}{more(slot)}"
        )
        if slot == "environment":
            sections.append(world())
    folder = Path(__file__).parent / "plugins" / "my_artifact_kind"
    files = [folder / "__init__.py", folder / "stage.py"]
    blocks = [f"`my_artifact_kind/{f.name}`:\n\n{code(f.read_text())}" for f in files]
    said = "A kind of artifact is no part: it stands on a port of a task of one's own."
    sections.append("\n".join([f"## To add an artifact kind\n\n{said}\n", *blocks]))
    places = [
        f"`{each.__module__}`:\n\n{code(stub(each))}" for _, each in sorted(spoken_of.items())
    ]
    sections.append("\n".join(["## What several slots speak of\n", *places]))
    return "\n".join(sections)


def world() -> str:
    """An environment that poses its own problems, in the same slot."""
    from posttrain.learning.episodes.worlds import base

    names = [f"`{name}`" for name in sorted(base.World.__abstractmethods__)]
    return (
        "## To add a world\n\nA world is an environment, in the same slot, that poses its own"
        " problems and knows how they are solved; a source and the stages name it by its kind."
        " [A world of your own](worlds.md#a-world-of-your-own) is one in a file, with the recipe"
        " that names it. What it gives is held to what stands here while it plays, and what is"
        " wrong is told with method and file: facts and states are JSON, every situation that asks"
        " has a `key`, and what a role earns adds up to a number from 0 to 1.\n\n"
        "Those that ship stand in [`posttrain/learning/episodes/worlds/`]"
        "(../posttrain/learning/episodes/worlds).\n\n"
        f"What a world implements ({', '.join(names[:-1])} and {names[-1]} at least), and what it"
        f" gives:\n\n{code(*map(stub, (base.Posed, base.World)))}"
    )


def code(*texts: str) -> str:
    """A block of Python in Markdown."""
    body = "\n\n\n".join(text.rstrip("\n") for text in texts)
    return f"```python\n{body}\n```\n"


def must(one_of: tuple[str, ...], base: type) -> str:
    """Which of the methods a part must have."""
    names = [f"`{name}`" for name in one_of]
    abstract = sorted({*getattr(base, "__abstractmethods__", ())} - {*one_of})
    each = [f"`{name}`" for name in abstract]
    first = names[0] if len(names) == 1 else f"one of {', '.join(names)}"
    return f"{' and '.join([first, *each])} at least"


def classes_of(base: type) -> list[type]:
    """The base of a slot, and the classes of its own module that it speaks of, in their order."""
    module = sys.modules[base.__module__]
    own = {
        name: each
        for name, each in vars(module).items()
        if isinstance(each, type) and each.__module__ == module.__name__ and name[0] != "_"
    }
    found, pending = set(), [base.__name__]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += own.keys() & set(re.findall(r"\w+", stub(own[name])))
    return [each for name, each in own.items() if name in found]


def classes_named(owner: type) -> dict[str, type]:
    """Classes of posttrain in the signatures of a class, that its module imports."""
    from posttrain.stage.slots import Part

    module = sys.modules[owner.__module__]
    names = set()
    for node in ast.walk(ast.parse(stub(owner))):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            names |= set(re.findall(r"\w+", ast.unparse(node.annotation)))
        elif isinstance(node, ast.FunctionDef) and node.returns:
            names |= set(re.findall(r"\w+", ast.unparse(node.returns)))
    found = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("posttrain."):
            for name in names & {each.name for each in node.names}:
                each = getattr(importlib.import_module(node.module), name)
                if isinstance(each, type) and not issubclass(each, Part):
                    found[name] = each
    return found


def stub(owner: type) -> str:
    """A class as its users see it: docstring, fields, and public methods without their code."""
    source = textwrap.dedent(inspect.getsource(owner))
    lines = dict(enumerate(source.splitlines(), start=1))
    (node,) = ast.parse(source).body
    for each in node.body:
        if isinstance(each, ast.FunctionDef):
            first = min([each.lineno, *(one.lineno for one in each.decorator_list)])
            said = each.body[0].end_lineno if isinstance(each.body[0], ast.Expr) else None
            kept = range(first, said + 1) if said and each.name[0] != "_" else ()
            gone = set(range(first, each.end_lineno + 1)) - set(kept)
        else:
            continue
        for number in gone:
            del lines[number]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines.values())).rstrip()


def more(slot: str) -> str:
    """What else is to be known of a slot."""
    if slot == "advantage":
        part = importlib.import_module("posttrain.learning.algorithms.part")
        needs = "\n".join(f"- `{name}`: {said}" for name, said in part.NEEDS.items())
        return (
            "\nAdvantages, surrogates, token weights and regularizers are parts of an algorithm:\n"
            f"\n{code(stub(part.AlgorithmPart))}\n"
            f"In `NEEDS` they name what the learner is to compute for them:\n\n{needs}\n"
        )
    if slot == "problem_sampler":
        said = (
            "A simulated student, whose skill is known, tells in seconds what a sampler does:"
            " how much of the practice is where something can be learned, and what the student"
            " solves in the end. Beside `my_problem_sampler.py`, `taught.py`:"
        )
        plans = (
            "A sampler that plans over the run reads `pool.steps`, which RL and this student give."
            " Where it is None nothing is drawn, such as where a recipe is looked up: refuse it in"
            " `draw` with a `UserError`, rather than plan over a number that nobody set."
        )
        taught = code((Path(__file__).parent / "taught.py").read_text())
        return f"\n{said}\n\n{taught}\n{plans}\n"
    if slot == "verifier":
        comparing = importlib.import_module("posttrain.learning.rewards.verifiers.comparing")
        said = (
            "One that compares an answer leaves finding it to an extractor, which a recipe names:"
        )
        return f"\n{said}\n\n{code(stub(comparing.ComparingVerifier))}"
    if slot == "schedule":
        from posttrain.pipeline.recipe_schema import schedulable_fields

        rows = [
            f"| `{place}` | {kind} | {', '.join(f'`{name}`' for name in names)} |"
            for place, kind, names in schedulable_fields("flows.post_training", ROOT)
        ]
        head = "The numbers that take a schedule (`posttrain parts schedule` lists them too):"
        return "\n".join(["", head, "", "| in | of kind | numbers |", "|---|---|---|", *rows, ""])
    return ""


def document() -> str:
    """The document with today's examples."""
    return DOCUMENT.read_text().partition(MARK)[0] + MARK + "\n" + examples()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    DOCUMENT.write_text(document())
