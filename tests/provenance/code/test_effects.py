"""What importing a module does: X counts, and Y does not."""

import pytest

CASES = {
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
    "decorators that call each other": """
        # pkg/stage.py
        ALL = []
        def first(f): return second(f) or ALL.append(f)
        def second(f): return f if f else first(f)
        @first
        def one(): return 1
        @second
        def two(): return X
        def run(): return 1
        UNUSED = Y
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


@pytest.mark.parametrize("name", CASES)
def test_what_an_import_does_counts(project, name):
    project.check_that_only_x_counts(CASES[name])
