"""What static analysis cannot see."""

import pytest

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
    "import by a name made of the module's own": (
        """
        # pkg/stage.py
        from importlib import import_module
        def run(name): return import_module(f"{__package__}.{name}")
        # pkg/exact.py
        def exact(): return X
        """,
        {
            "pkg.stage": "import_module at line 2",
            "pkg.*": "import_module at line 2 of pkg.stage",
        },
    ),
    "how a function is written": (
        """
        # pkg/stage.py
        import inspect
        def run(): return inspect.getdoc(grade)
        def grade(): "From 1 to X."
        """,
        {"the text of every function": "getdoc at line 2 of pkg.stage"},
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
