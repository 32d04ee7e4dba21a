"""What a function reaches through imports: X counts, and Y does not."""

import pytest

CASES = {
    "from-import": """
        # pkg/stage.py
        from pkg.maths import helper
        def run(): return helper()
        # pkg/maths.py
        def helper(): return deeper()
        def deeper(): return X
        def other(): return Y
        """,
    "module alias": """
        # pkg/stage.py
        import pkg.maths as m
        def run(): return m.helper()
        # pkg/maths.py
        def helper(): return X
        def other(): return Y
        """,
    "dotted import": """
        # pkg/stage.py
        import pkg.deep.maths
        def run(): return pkg.deep.maths.helper()
        # pkg/deep/maths.py
        def helper(): return X
        def other(): return Y
        """,
    "sibling module": """
        # pkg/stage.py
        from . import maths
        def run(): return maths.helper()
        # pkg/maths.py
        def helper(): return X
        def other(): return Y
        """,
    "relative import from above": """
        # pkg/stage.py
        from .deep.low import helper
        def run(): return helper()
        # pkg/deep/low.py
        from ..maths import inner as renamed
        def helper(): return renamed()
        # pkg/maths.py
        def inner(): return X
        def other(): return Y
        """,
    "re-export through __init__": """
        # pkg/stage.py
        from pkg.deep import helper
        def run(): return helper()
        # pkg/deep/low.py
        def helper(): return X
        def other(): return Y
        # pkg/deep/__init__.py
        from .low import helper, other
        __all__ = ["helper", "other"]
        """,
    "submodule re-exported as an object": """
        # pkg/stage.py
        from pkg import deep
        def run(): return deep.low.helper()
        # pkg/deep/low.py
        def helper(): return X
        def other(): return Y
        # pkg/deep/__init__.py
        from . import low
        """,
    "conditional import": """
        # pkg/stage.py
        import sys
        if sys.platform == "linux":
            from pkg.fast import kernel
        else:
            from pkg.slow import kernel
        def run(): return kernel()
        # pkg/fast.py
        def kernel(): return 1
        def other(): return Y
        # pkg/slow.py
        def kernel(): return X
        """,
    "fallback of an import": """
        # pkg/stage.py
        try:
            import pkg.fast as impl
        except ImportError:
            import pkg.slow as impl
        def run(): return impl.kernel()
        # pkg/fast.py
        def kernel(): return 1
        # pkg/slow.py
        def kernel(): return X
        def other(): return Y
        """,
    "lazy from-import": """
        # pkg/stage.py
        def run():
            from pkg.maths import helper
            return helper()
        # pkg/maths.py
        def helper(): return X
        def other(): return Y
        """,
    "lazy module import": """
        # pkg/stage.py
        def run():
            import pkg.maths
            from pkg import deep
            return pkg.maths.helper(deep.low.f)
        # pkg/maths.py
        def helper(f): return X
        def other(): return Y
        # pkg/deep/low.py
        def f(): return 1
        def g(): return Y
        """,
    "name of a lazy import in a nested function": """
        # pkg/stage.py
        def run():
            from pkg import maths as m
            def inner(): return [m.helper() for _ in range(2)]
            return inner
        # pkg/maths.py
        def helper(): return X
        def other(): return Y
        """,
    "attribute of another module assigned": """
        # pkg/stage.py
        from pkg import state
        def run(): state.level = 1
        # pkg/state.py
        level = X
        other = Y
        """,
    "literal getattr": """
        # pkg/stage.py
        from pkg import maths
        def run(): return getattr(maths, "helper")()
        # pkg/maths.py
        def helper(): return X
        def other(): return Y
        """,
    "literal import_module": """
        # pkg/stage.py
        import importlib
        def run(): return importlib.import_module("pkg.maths").helper()
        # pkg/maths.py
        def helper(): return X
        def other(): return Y
        """,
    "module passed as a value is taken whole": """
        # pkg/stage.py
        from pkg import maths, rest
        def apply(module): return module.helper()
        def run(): return apply(maths), rest.f()
        # pkg/maths.py
        def helper(): return X
        # pkg/rest.py
        def f(): return 1
        def other(): return Y
        """,
    "package passed as a value": """
        # pkg/stage.py
        from pkg import deep
        def run(): return [deep]
        # pkg/deep/low.py
        def helper(): return X
        # pkg/other.py
        def helper(): return Y
        # pkg/deep/__init__.py
        from . import low
        from pkg import other
        """,
    "cycle of modules and functions": """
        # pkg/stage.py
        from pkg import maths
        def run(n): return maths.even(n)
        def odd(n): return n and maths.even(n - X)
        def other(): return Y
        # pkg/maths.py
        from pkg import stage
        def even(n): return n or stage.odd(n)
        """,
    "package without __init__": """
        # pkg/stage.py
        from pkg.space.maths import helper
        def run(): return helper()
        # pkg/space/maths.py
        def helper(): return X
        def other(): return Y
        """,
}


@pytest.mark.parametrize("name", CASES)
def test_an_edit_counts_where_imports_lead_and_only_there(project, name):
    project.check_that_only_x_counts(CASES[name])


def test_a_package_without_init_is_followed(project):
    project.write(CASES["package without __init__"])
    (project.root / "pkg" / "space" / "__init__.py").unlink()
    assert "pkg.space.maths:helper" in project.closure().symbols
