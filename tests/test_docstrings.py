"""Examples in docstrings run, and public docstrings of the documented rooms are whole."""

import ast
import doctest
import functools
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WITH_EXAMPLES = [
    path.relative_to(ROOT).with_suffix("")
    for package in ("posttrain", "tasks", "flows")
    for path in sorted((ROOT / package).rglob("*.py"))
    if ">>> " in path.read_text()
]
DOCUMENTED = ("posttrain/stage", "posttrain/learning", "posttrain/provenance")

RULES = "D417,DOC201,DOC402,DOC501"


@pytest.mark.parametrize("module", WITH_EXAMPLES, ids=str)
def test_examples_in_docstrings_hold(module):
    name = ".".join(module.parts).removesuffix(".__init__")
    failed, attempted = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert attempted > 0
    assert failed == 0


def public_functions(body, *, within=""):
    """Functions and methods of public names that others can call, with what they are called."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.name.startswith("_"):
                yield within + node.name, node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body, within=f"{node.name}.")


def parameters(node):
    """Names of the parameters but for the object itself."""
    given = node.args
    every = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    return [a.arg for a in every if a and a.arg not in ("self", "cls") and a.arg[0] != "_"]


@functools.cache
def parsed(path):
    """A file's syntax tree, which several rules look at."""
    return ast.parse(path.read_text())


@functools.cache
def explained():
    """Names of all functions of the package whose docstring has `Args:`."""
    trees = [parsed(path) for path in sorted((ROOT / "posttrain").rglob("*.py"))]
    every = (pair for tree in trees for pair in public_functions(tree.body))
    return {name for name, node in every if "Args:" in (ast.get_docstring(node) or "")}


def missing(path):
    """Parameters that no `Args:` names, by function.

    One sentence is enough of a function with a single parameter. A method that carries out what its
    base declares may point there: its docstring says ``see `Base.method` ``, which has them.
    """
    found = []
    for name, node in public_functions(parsed(path).body):
        text = ast.get_docstring(node) or ""
        prose = text if "Args:" in text else text.partition(">>> ")[0].strip()
        if len(parameters(node)) < 2 and "\n" not in prose:
            continue
        pointer = re.search(r"see `([\w.]+)`", text)
        if pointer and pointer[1] in explained():
            continue
        section = text.partition("Args:")[2]
        found += [f"{name}({p})" for p in parameters(node) if f"{p}:" not in section]
    return found


def against_ruff(paths):
    """Those of these files where ruff misses a section of a public docstring."""
    options = [
        "--isolated",
        "--preview",
        "--select",
        RULES,
        "--output-format",
        "concise",
        "--quiet",
    ]
    google = [
        'lint.pydocstyle.convention = "google"',
        "lint.pydoclint.ignore-one-line-docstrings=true",
    ]
    configs = [word for line in google for word in ("--config", line)]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", *options, *configs, *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    found = (line.split(":") for line in done.stdout.splitlines() if ".py:" in line)
    return {path for path, line, *_ in found if stands_in_public(ROOT / path, int(line))}


def stands_in_public(path, line):
    """True where a line is of a public function's docstring."""
    bodies = [node.body[0] for _, node in public_functions(parsed(path).body)]
    return any(body.lineno <= line <= body.end_lineno for body in bodies)


def documented():
    return [path for room in DOCUMENTED for path in sorted((ROOT / room).rglob("*.py"))]


@pytest.fixture(scope="module")
def unfinished():
    """Files that miss something, with what it is where ruff does not say it."""
    paths = {str(path.relative_to(ROOT)): missing(path) for path in documented()}
    found = dict.fromkeys(against_ruff(paths), ["ruff check --preview --select DOC"])
    return found | {path: names for path, names in paths.items() if names}


def test_public_docstrings_are_whole(unfinished):
    assert unfinished == {}


def test_an_argument_that_is_not_named_is_found(tmp_path):
    path = tmp_path / "some.py"
    path.write_text(
        'def f(x_B, y):\n    """Do.\n\n    Args:\n        x_B: Rewards.\n\n    """\n'
        'class A:\n    def g(self, *z):\n        """Do.\n\n        More.\n        """\n'
        'def h(x):\n    """Do."""\ndef _i(x):\n    """Do.\n\n    More.\n    """\n'
        'def j(x, y):\n    """Do."""\ndef k(x, y):\n    """Do; see `Verifier.score`."""\n'
        'def l(x, y):\n    """Do; see `B.k`."""\n'
    )
    assert missing(path) == ["f(y)", "A.g(z)", "j(x)", "j(y)", "l(x)", "l(y)"]
