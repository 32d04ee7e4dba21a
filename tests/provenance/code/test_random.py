"""Random packages: editing one function changes the entries that reach it, and no others."""

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posttrain.provenance.code import CodeReader

NUM_MODULES = 4
WAYS = ("from", "module", "lazy", "alias", "table", "default", "method", "package")


@st.composite
def graphs(draw):
    """Functions with the module of each, and edges (caller, callee) with the way of each call."""
    num_functions = draw(st.integers(2, 9))
    homes = [draw(st.integers(0, NUM_MODULES - 1)) for _ in range(num_functions)]
    numbers = st.integers(0, num_functions - 1)
    edges = draw(st.dictionaries(st.tuples(numbers, numbers), st.sampled_from(WAYS), max_size=16))
    return homes, edges, draw(numbers)


def written(homes: list[int], edges: Mapping[tuple[int, int], str], bodies: list[int]):
    """Source text of each module."""
    lines: dict[str, list[str]] = {f"m{n}": [] for n in range(NUM_MODULES)}
    lines["__init__"] = [f"from pkg.m{home} import f{n}" for n, home in enumerate(homes)]
    for caller, home in enumerate(homes):
        head, body, default = [], [], ""
        for callee in sorted(callee for source, callee in edges if source == caller):
            there, name, own = f"pkg.m{homes[callee]}", f"f{callee}", f"{caller}_{callee}"
            match edges[caller, callee]:
                case "from":
                    head.append(f"from {there} import {name} as g{own}")
                    body.append(f"g{own}()")
                case "module":
                    head.append(f"import {there} as m{own}")
                    body.append(f"m{own}.{name}()")
                case "lazy":
                    body.append(f"from .m{homes[callee]} import {name}; {name}()")
                case "alias":
                    head += [f"import {there}", f"a{own} = {there}.{name}"]
                    body.append(f"[a{own}() for {name} in [1]]")
                case "table":
                    head += [f"import {there}", f"T{own} = {{1: {there}.{name}}}"]
                    body.append(f"T{own}[1]()")
                case "default":
                    head.append(f"from . import m{homes[callee]} as d{own}")
                    default = f"{default}x{own}=d{own}.{name}, "
                case "method":
                    head.append(f"import {there} as n{own}")
                    head.append(f"class C{own}:\n    def call(self): return n{own}.{name}()")
                    body.append(f"C{own}().call()")
                case "package":
                    body.append(f"import pkg; pkg.{name}()")
        body.append(f"return {bodies[caller]}")
        function = [f"def f{caller}({default}):", *(f"    {line}" for line in body)]
        lines[f"m{home}"] += [*head, *function]
    return {module: "\n".join(text) + "\n" for module, text in lines.items()}


def reaching(target: int, num_functions: int, edges: Mapping[tuple[int, int], str]) -> set[int]:
    found = {target}
    for _ in range(num_functions):
        found |= {caller for caller, callee in edges if callee in found}
    return found


def digests(root, modules: Mapping[str, str], num_functions: int, homes: list[int], cache):
    for module, text in modules.items():
        (root / "pkg" / f"{module}.py").write_text(text)
    reader = CodeReader(root, packages=("pkg",), cache=cache)
    return [reader.closure(f"pkg.m{homes[n]}:f{n}").digest for n in range(num_functions)]


@pytest.mark.slow
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(graph=graphs())
def test_an_edit_changes_exactly_the_entries_that_reach_it(tmp_path, graph):
    homes, edges, edited = graph
    (tmp_path / "pkg").mkdir(exist_ok=True)
    bodies = [0] * len(homes)
    before = digests(tmp_path, written(homes, edges, bodies), len(homes), homes, None)
    bodies[edited] = 1
    modules = written(homes, edges, bodies)
    after = digests(tmp_path, modules, len(homes), homes, tmp_path / "cache")
    changed = {n for n in range(len(homes)) if before[n] != after[n]}
    assert changed == reaching(edited, len(homes), edges)
    assert digests(tmp_path, modules, len(homes), homes, tmp_path / "cache") == after
