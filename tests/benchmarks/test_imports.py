"""Benchmarks and examples name only what there is, also inside of functions that no test calls."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("benchmarks", "posttrain", "tasks", "flows")
SCRIPTS = sorted(
    str(path.relative_to(ROOT))
    for room in ("benchmarks", "examples")
    for path in (ROOT / room).rglob("*.py")
)


def missing(module, name):
    found = importlib.import_module(module)
    if hasattr(found, name):
        return False
    try:
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return True
    return False


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_a_script_imports_from_us_is_there(script):
    imports = [
        node
        for node in ast.walk(ast.parse((ROOT / script).read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS
    ]
    gone = [
        f"{each.module}.{alias.name}"
        for each in imports
        for alias in each.names
        if missing(each.module, alias.name)
    ]
    assert gone == []
