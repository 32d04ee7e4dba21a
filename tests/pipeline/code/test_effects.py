"""What importing a module does, and what static analysis cannot see."""

import pytest

from posttrain.errors import UserError

# As in test_reach: X counts, Y does not.
EFFECTS = {
    "call at import": """
        # pkg/stage.py
        import pkg.setup
        def run(): return 1
        # pkg/setup.py
        def prepare(): return X
        def other(): return Y
        prepare()
        """,
    "patch of another module": """
        # pkg/stage.py
        from pkg import patch, target
        def run(): return target.level
        # pkg/patch.py
        import pkg.target
        def other(): return Y
        pkg.target.level = X
        # pkg/target.py
        level = 0
        """,
    "loop at import": """
        # pkg/stage.py
        from pkg.table import TABLE, UNUSED
        def run(): return TABLE
        # pkg/table.py
        TABLE = {}
        UNUSED = Y
        for n in range(X):
            TABLE[n] = n * n
        """,
    "name bound by a loop": """
        # pkg/stage.py
        for last in range(X):
            pass
        def run(): return last
        UNUSED = Y
        """,
    "body of a package above": """
        # pkg/stage.py
        from pkg.deep.low import f
        def run(): return f()
        # pkg/deep/low.py
        def f(): return 1
        # pkg/deep/__init__.py
        print(X)
        UNUSED = Y
        """,
    "imports of imports": """
        # pkg/stage.py
        import pkg.one
        def run(): return 1
        # pkg/one.py
        import pkg.two
        UNUSED = Y
        # pkg/two.py
        def f(): return X
        f()
        """,
    "lazily imported module": """
        # pkg/stage.py
        def run(): from pkg import lazy
        def other(): from pkg import never
        # pkg/lazy.py
        print(X)
        # pkg/never.py
        print(Y)
        """,
    "guarded effect": """
        # pkg/stage.py
        FLAG = X
        UNUSED = Y
        if FLAG:
            print("set")
        def run(): return 1
        """,
    "registry filled by calls": """
        # pkg/stage.py
        from pkg import exact
        from pkg.registry import ALL
        def run(name): return ALL[name]()
        # pkg/registry.py
        ALL = {}
        def register(name, function): ALL[name] = function
        # pkg/exact.py
        from pkg.registry import register
        def exact(): return X
        def helper(): return Y
        register("exact", exact)
        """,
    "registry filled by assignment": """
        # pkg/stage.py
        ALL = {}
        def exact(): return X
        def helper(): return Y
        ALL["exact"] = exact
        def run(name): return ALL[name]()
        """,
    "registry filled by a discarded call": """
        # pkg/stage.py
        ALL = []
        def exact(): return X
        def helper(): return Y
        _ = ALL.append(exact)
        def run(name): return ALL
        """,
    "registry filled by decorators": """
        # pkg/stage.py
        from pkg import exact
        from pkg.registry import ALL
        def run(name): return ALL[name]()
        # pkg/registry.py
        ALL = {}
        def register(name):
            def keep(function):
                ALL[name] = function
                return function
            return keep
        # pkg/exact.py
        from pkg.registry import register
        @register("exact")
        def exact(): return X
        def helper(): return Y
        """,
    "registry object with a method": """
        # pkg/stage.py
        from pkg.registry import REGISTRY
        @REGISTRY.add
        class Exact: value = X
        class Other: value = Y
        def run(name): return REGISTRY[name]
        # pkg/registry.py
        class Registry(dict):
            def add(self, item): self[item.__name__] = item
        REGISTRY = Registry()
        """,
    "third-party registry": """
        # pkg/stage.py
        import atexit
        @atexit.register
        def last(): return X
        def other(): return Y
        def run(): return 1
        """,
    "subclasses that register themselves": """
        # pkg/stage.py
        from pkg import exact
        from pkg.base import Verifier
        def run(name): return Verifier.all[name]()
        # pkg/base.py
        class Verifier:
            all = {}
            def __init_subclass__(cls): cls.all[cls.__name__] = cls
        # pkg/exact.py
        from pkg.base import Verifier
        class Text(Verifier): pass
        class Exact(Text): value = X
        class Other: value = Y
        """,
    "metaclass that registers": """
        # pkg/stage.py
        from pkg import exact
        def run(): return 1
        # pkg/base.py
        class Meta(type): pass
        class Verifier(metaclass=Meta): pass
        # pkg/exact.py
        from pkg.base import Verifier
        class Exact(Verifier): value = X
        class Other: value = Y
        """,
    "decorator that remembers nothing": """
        # pkg/stage.py
        import functools
        from pkg import maths
        def run(): return maths.f(X)
        # pkg/deco.py
        import functools
        def wrap(function, inner):
            @functools.wraps(function)
            def wrapped(*args): return inner(*args)
            return wrapped
        def timed(function): return wrap(function, function)
        # pkg/maths.py
        from pkg.deco import timed
        @timed
        def f(x): return x
        @timed
        def g(x): return Y
        """,
    "main guard and type checkers": """
        # pkg/stage.py
        import typing
        if typing.TYPE_CHECKING:
            import pkg.types
        if __name__ == "__main__":
            print(Y)
        else:
            print(X)
        def run(): return 1
        # pkg/types.py
        print(Y)
        """,
}


@pytest.mark.parametrize("name", EFFECTS)
def test_what_an_import_does_counts(project, name):
    text = EFFECTS[name]
    before = project.digest(text, {"X": 11, "Y": 22})
    assert project.digest(text, {"X": 11, "Y": 33}) == before
    assert project.digest(text, {"X": 12, "Y": 22}) != before


# Here every X counts, although no name leads to it, and `opaque` says why.
OPAQUE = {
    "getattr of an unknown object": (
        """
        # pkg/stage.py
        def run(thing, name): return getattr(thing, name)
        def other(): return X
        """,
        {"pkg.stage": "getattr by string at line 1"},
    ),
    "getattr of a module": (
        """
        # pkg/stage.py
        from pkg import maths

        def run(name): return getattr(maths, f"{name}_loss")
        # pkg/maths.py
        def l1_loss(): return X
        """,
        {"pkg.maths": "getattr by string at line 3 of pkg.stage"},
    ),
    "getattr of a lazily imported module": (
        """
        # pkg/stage.py
        def run(name):
            from pkg import maths
            return getattr(maths, name)
        # pkg/maths.py
        def l1_loss(): return X
        """,
        {"pkg.maths": "getattr by string at line 3 of pkg.stage"},
    ),
    "import by a run-time name": (
        """
        # pkg/stage.py
        import importlib
        def run(name): return importlib.import_module(name)
        def other(): return X
        """,
        {"pkg.stage": "import_module at line 2"},
    ),
    "import by a name in a table of strings": (
        """
        # pkg/stage.py
        from importlib import import_module
        from pkg.table import LAZY
        def run(name): return import_module(LAZY[name])
        # pkg/table.py
        LAZY = {"exact": "pkg.exact", "other": "pkg.gone", "text": "pkg.stage is here"}
        # pkg/exact.py
        def exact(): return X
        """,
        {"pkg.stage": "import_module at line 3"},
    ),
    "module-level __getattr__": (
        """
        # pkg/stage.py
        from pkg.lazy import exact
        def run(): return exact()
        # pkg/lazy.py
        def __getattr__(name): return found
        def found(): return X
        """,
        {"pkg.lazy": "nothing in it defines exact"},
    ),
    "globals": (
        """
        # pkg/stage.py
        def run(name): return globals()[name]()
        def other(): return X
        """,
        {"pkg.stage": "globals at line 1"},
    ),
    "eval": (
        """
        # pkg/stage.py
        def run(text): return eval(text)
        def other(): return X
        """,
        {"pkg.stage": "eval at line 1"},
    ),
    "sys.modules": (
        """
        # pkg/stage.py
        import sys
        def run(name): return sys.modules[__name__].other()
        def other(): return X
        """,
        {"pkg.stage": "sys.modules at line 2"},
    ),
    "star import": (
        """
        # pkg/stage.py
        from pkg.maths import *
        def run(): return helper()
        # pkg/maths.py
        def helper(): return 1
        def other(): return X
        """,
        {"pkg.maths": "star import in pkg.stage"},
    ),
    "star import of a re-exporting package": (
        """
        # pkg/stage.py
        from pkg.deep import helper
        def run(): return helper()
        # pkg/deep/low.py
        def helper(): return X
        # pkg/deep/__init__.py
        from .low import *
        """,
        {"pkg.deep.low": "star import in pkg.deep"},
    ),
    "registry filled at import": (
        """
        # pkg/stage.py
        ALL = []
        @ALL.append
        def other(): return X
        def run(): return 1
        """,
        {"pkg.stage": "registry filled at import by other"},
    ),
    "module as a value": (
        """
        # pkg/stage.py
        from pkg import maths
        def run(): return [maths]
        # pkg/maths.py
        def other(): return X
        """,
        {"pkg.maths": "used as a value by pkg.stage:run"},
    ),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_what_cannot_be_seen_takes_the_whole_module_and_says_so(project, name):
    text, opaque = OPAQUE[name]
    before = project.digest(text, {"X": 1})
    assert project.closure().opaque == opaque
    assert project.digest(text, {"X": 2}) != before


@pytest.mark.parametrize(
    "body",
    [
        "torch.float32 and getattr(torch, name)",
        "model.eval()",
        "(lambda eval: eval(name))(str)",
        "vars(name)",
        "getattr(Config, name)",
        "getattr(name, 'literal')",
    ],
)
def test_what_only_looks_opaque_is_not(project, body):
    text = f"""
        # pkg/stage.py
        import torch
        from pkg.model import model
        class Config: pass
        def run(name): return {body}
        def other(): return X
        # pkg/model.py
        model = 1
        """
    before = project.digest(text, {"X": 1})
    assert project.closure().opaque == {}
    assert project.digest(text, {"X": 2}) == before


@pytest.mark.parametrize("reader", ["open(__file__)", "resources.files('pkg')"])
def test_files_beside_a_module_that_looks_for_them_count(project, reader):
    text = f"""
        # pkg/stage.py
        from importlib import resources
        def run(): return {reader}
        """
    project.write(text)
    (project.root / "pkg" / "chat.jinja").write_text("one")
    before = project.closure()
    (project.root / "pkg" / "chat.jinja").write_text("two")
    assert "pkg.stage:<file chat.jinja>" in before.symbols
    assert project.closure().digest != before.digest


def test_files_beside_other_modules_do_not_count(project):
    project.write("\n# pkg/stage.py\ndef run(): return 1\n")
    (project.root / "pkg" / "chat.jinja").write_text("one")
    assert list(project.closure().symbols) == ["pkg.stage:run"]


def test_third_party_distributions_are_found_by_what_is_imported(project):
    project.write(
        """
        # pkg/stage.py
        import os, numpy.linalg
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            import torch
        def run():
            import yaml
        def other():
            import polars
        # pkg/unreached.py
        import rich
        """
    )
    assert project.closure().packages == {"numpy", "PyYAML"}


def test_a_package_that_is_not_installed_stands_for_itself(project):
    project.write("\n# pkg/stage.py\ndef run(): import no_such_engine.fast\n")
    assert project.closure().packages == {"no_such_engine"}


def test_code_outside_is_neither_counted_nor_followed(project, tmp_path):
    from posttrain.pipeline.code import code_closure

    text = """
        # pkg/stage.py
        from pkg.progress import bar
        def run(): return bar()
        # pkg/progress.py
        import rich
        def bar(): return X
        print(X)
        """
    closures = []
    for value in (1, 2):
        project.write(text, {"X": value})
        closures.append(
            code_closure(
                "pkg.stage:run", root=tmp_path, packages=("pkg",), outside=("pkg.progress",)
            )
        )
    assert closures[0] == closures[1]
    assert closures[0].packages == frozenset()
    assert not [name for name in closures[0].symbols if name.startswith("pkg.progress")]


def test_a_syntax_error_is_named_by_file_and_line(project):
    project.write(
        """
        # pkg/stage.py
        from pkg.broken import f
        def run(): return f()
        # pkg/broken.py
        x = 1
        def f(:
        """
    )
    with pytest.raises(UserError, match=r"pkg/broken\.py:2: not valid Python"):
        project.closure()


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("pkg.stage:rum", "pkg.stage does not define 'rum'; did you mean 'run'"),
        ("pkg.gone:run", "there is no module pkg.gone"),
    ],
)
def test_an_entry_that_is_not_there_gets_a_sentence(project, entry, sentence):
    project.write("\n# pkg/stage.py\ndef run(): return 1\n")
    with pytest.raises(UserError, match=sentence):
        project.closure(entry)
