"""The public surface of `import posttrain`: its names, signatures, types and weight."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import posttrain as pt

ROOT = Path(__file__).parents[3]
SIGNATURES = {
    "compare": "(before, after='latest', *, project='.')",
    "lineage": "(node, direction='up', *, project='.', depth=12, limit=500)",
    "load": "(name, *, recipe='.', run=None, release=None, format='polars', columns=None,"
    " where=None)",
    "metrics": "(*runs, project='.')",
    "plan": "(recipe='.', overrides=(), *, start=None)",
    "run": "(recipe='.', overrides=(), *, start=None, only=None, local=True, slots=None,"
    " quiet=False)",
    "why": "(stage, recipe='.', overrides=(), *, between=None)",
}
FIELDS = {
    "posttrain.operations.python.causes:Why": "stage headings causes rest closing",
    "posttrain.operations.python.causes:Cause": "sentence component details",
    "posttrain.operations.python.figures:Comparison": "before after stages paired remarks",
    "posttrain.operations.python.graphs:Lineage": "graph direction project",
    "posttrain.operations.python.plans:RunPlan": "recipe stages notes closing",
    "posttrain.operations.python.plans:PlannedStage": "stage action reasons seconds",
    "posttrain.operations.python.runs:RunResult": "recipe run stages seconds summary",
    "posttrain.operations.python.runs:FinishedStage": "stage status seconds outputs metrics",
}


def bare(function):
    """A signature without types, as a caller sees it."""
    signature = inspect.signature(function)
    plain = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_signature_stays(name):
    # Notebooks of others call these: a parameter may be added at the end, with a default.
    assert bare(getattr(pt, name)) == SIGNATURES[name]


@pytest.mark.parametrize("place", FIELDS)
def test_the_fields_of_a_result_stay(place):
    module, _, name = place.partition(":")
    found = getattr(__import__(module, fromlist=[name]), name)
    assert " ".join(found.__dataclass_fields__) == FIELDS[place]
    assert found.__dataclass_params__.frozen


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_function_says_its_types_arguments_result_and_errors(name):
    function = getattr(pt, name)
    said = inspect.getdoc(function) or ""
    assert all(part in said for part in ("\nArgs:\n", "\nReturns:\n", "\nRaises:\n"))
    parameters = inspect.signature(function).parameters
    assert all(f"\n    {each}:" in said for each in parameters)
    assert set(function.__annotations__) == {*parameters, "return"}


def test_every_name_is_listed_typed_and_there():
    offered = {*SIGNATURES, "StageFailed", "UserError", "__version__"}
    assert set(pt.__all__) == offered
    assert offered <= set(dir(pt))
    assert all(getattr(pt, name) is not None for name in offered)
    stub = ast.parse((ROOT / "posttrain/__init__.pyi").read_text())
    typed = {
        alias.asname: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == pt._PLACES
    assert (ROOT / "posttrain/py.typed").is_file()


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        pt.lod  # noqa: B018


IMPORTS = """
import sys
before = {*sys.modules}
import posttrain
print(sorted({*sys.modules} - before))
"""


def test_import_posttrain_imports_nothing_else():
    command = [sys.executable, "-c", IMPORTS]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "posttrain" in ast.literal_eval(told.stdout)
    assert {*ast.literal_eval(told.stdout)} <= {"posttrain", "importlib", "_imp", "warnings"}
