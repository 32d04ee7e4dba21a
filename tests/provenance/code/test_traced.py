"""The claim itself: whatever runs was in the closure; tried on the analyzer's own code."""

import sys
from pathlib import Path

import pytest

import posttrain
from posttrain.provenance.code import CodeReader

ROOT = Path(posttrain.__file__).parents[1]
# Written by dataclasses, not by anybody.
GENERATED = {"__create_fn__", "<listcomp>", "<lambda>"}


def first_party_functions(call):
    """Top-level first-party definitions, by `module:name`, whose code runs during `call`."""
    seen = set()

    def record(frame, event, _argument):
        module = frame.f_globals.get("__name__") or ""
        name = frame.f_code.co_qualname.split(".")[0]
        if event == "call" and module.startswith("posttrain.") and name not in GENERATED:
            seen.add(f"{module}:{name}")

    before = sys.getprofile()
    sys.setprofile(record)
    try:
        call()
    finally:
        sys.setprofile(before)
    return seen


@pytest.mark.slow
@pytest.mark.core
def test_every_function_that_runs_is_in_the_closure(project, tmp_path):
    project.write(
        """
        # pkg/stage.py
        from __future__ import annotations
        import numpy, yaml
        from pkg.maths import *
        class Base:
            def __init_subclass__(cls): pass
        class Model(Base):
            field: "list[int]" = [x for x in range(3)]
            def fit(self, /, *args, rate=0.5, **more):
                nonlocal_free = lambda y: (z := y)
                with open(__file__) as handle:
                    match handle.read():
                        case {"a": b, **rest}: return getattr(self, b)
                        case [*items]: return items
                return eval("rate") + numpy.float32(rate)
        if Base:
            try:
                @Model
                async def helper(): return await other()
            except* ValueError as error:
                raise
        def run(model: Model):
            import importlib, pkg.maths as m
            global STATE
            STATE = importlib.import_module("pkg.maths").f
            return m, importlib.import_module(STATE)
        for step in range(3): print(step)
        # pkg/maths.py
        LAZY = "pkg.other"
        def f(): return LAZY
        """
    )
    ran = first_party_functions(lambda: project.closure(cache=tmp_path / "cache"))
    ran |= first_party_functions(lambda: project.closure(cache=tmp_path / "cache"))
    # Which plug-ins a recipe names is no business of the analyzer.
    outside = ("posttrain.stage.slots",)
    closure = CodeReader(ROOT, packages=("posttrain",), outside=outside).closure(
        "posttrain.provenance.code:CodeReader"
    )
    assert len(ran) > 40
    assert ran - closure.symbols.keys() == set()
    # The analyzer reads annotations itself, but of syntax.
    opaque = closure.opaque.keys() - {"the text of every function"}
    assert all(module.startswith("posttrain.") for module in opaque)
