"""What definitions leave with others when a module is imported: X counts, and Y does not."""

import pytest

CASES = {
    "registering decorator on a method": """
        # pkg/stage.py
        ALL = {}
        def register(name):
            def keep(f):
                ALL[name] = f
                return f
            return keep
        class Handlers:
            @register("a")
            def a(): return X
        def run(name): return ALL[name]()
        class Other:
            def b(): return Y
        """,
    "registry in class body": """
        # pkg/stage.py
        ALL = {}
        def exact(): return 1
        class Handlers:
            ALL["a"] = lambda: X
        def run(name): return ALL[name]()
        """,
    "assigned result of a registering call": """
        # pkg/stage.py
        from pkg import plug
        from pkg.reg import ALL
        def run(): return ALL["x"]()
        # pkg/reg.py
        ALL = {}
        def register(name, f):
            ALL[name] = f
            return f
        # pkg/plug.py
        from pkg.reg import register
        def _exact(): return X
        exact = register("x", _exact)
        other = Y
        """,
    "assigned result of a registering method": """
        # pkg/stage.py
        from pkg import plug
        from pkg.reg import ALL
        def run(): return ALL["x"]()
        # pkg/reg.py
        ALL = {}
        # pkg/plug.py
        from pkg.reg import ALL
        def _exact(): return X
        exact = ALL.setdefault("x", _exact)
        """,
    "augmented assignment of an imported list": """
        # pkg/stage.py
        import pkg.plug
        from pkg.reg import ALL
        def run(): return ALL
        # pkg/reg.py
        ALL = []
        # pkg/plug.py
        from pkg.reg import ALL
        ALL += [X]
        """,
    "guard of a star import": """
        # pkg/stage.py
        FLAG = X
        if FLAG == 11:
            from pkg.fast import *
        else:
            from pkg.slow import *
        def run(): return f()
        # pkg/fast.py
        def f(): return 1
        # pkg/slow.py
        def f(): return 2
        """,
    "guard of an import with an effect": """
        # pkg/stage.py
        import pkg.state
        FLAG = X
        if FLAG == 11:
            import pkg.patch
        def run(): return pkg.state.level
        # pkg/patch.py
        import pkg.state as state
        state.level = 3
        # pkg/state.py
        level = 1
        """,
    "singledispatch registered by call": """
        # pkg/stage.py
        from pkg import more
        from pkg.base import f
        def run(): return f(1)
        # pkg/base.py
        from functools import singledispatch
        @singledispatch
        def f(x): return 1
        # pkg/more.py
        from pkg.base import f
        def g(x): return X
        f_int = f.register(int, g)
        """,
    "third-party registry decorator": """
        # pkg/stage.py
        import thirdparty
        from pkg import more
        def run(): return thirdparty.call("x")
        # pkg/more.py
        import thirdparty
        @thirdparty.hook("x")
        def g(x): return X
        """,
    "third-party base with hook": """
        # pkg/stage.py
        import thirdparty
        from pkg import more
        def run(): return thirdparty.call("x")
        # pkg/more.py
        import thirdparty
        class Plug(thirdparty.Base):
            x = X
        """,
    "base made by a call": """
        # pkg/stage.py
        import pkg.more
        from pkg.base import ALL
        def run(): return ALL
        # pkg/base.py
        ALL = []
        def make():
            class B:
                def __init_subclass__(cls): ALL.append(cls)
            return B
        # pkg/more.py
        from pkg.base import make
        class More(make()):
            x = X
        """,
    "base from a conditional": """
        # pkg/stage.py
        import pkg.more
        from pkg.base import A, B
        def run(): return A.all
        # pkg/base.py
        class B: pass
        class A:
            all = []
            def __init_subclass__(cls): A.all.append(cls)
        # pkg/more.py
        from pkg.base import A, B
        class More((A if A else B)):
            x = X
        """,
    "base from an alias": """
        # pkg/stage.py
        import pkg.more
        from pkg.base import A
        def run(): return A.all
        # pkg/base.py
        class A:
            all = []
            def __init_subclass__(cls): A.all.append(cls)
        Alias = A
        # pkg/more.py
        from pkg.base import Alias
        class More(Alias):
            x = X
        """,
    "decorator as a lambda": """
        # pkg/stage.py
        ALL = []
        @(lambda f: ALL.append(f) or f)
        def f(): return X
        def run(): return ALL
        """,
    "call with side effect in a default": """
        # pkg/stage.py
        ALL = []
        def register(f):
            ALL.append(f); return f
        def g(): return X
        def f(x=register(g)): return 1
        def run(): return ALL
        """,
    "comprehension registration": """
        # pkg/stage.py
        ALL = []
        def g(): return X
        T = [ALL.append(each) for each in (g,)]
        def run(): return ALL
        """,
    "instance constructor registers": """
        # pkg/stage.py
        ALL = []
        class Verifier:
            def __init__(self, f): ALL.append(f)
        def g(): return X
        exact = Verifier(g)
        def run(): return ALL
        """,
    "third-party patched by an assigned call": """
        # pkg/stage.py
        import pkg.more
        def run(): return 1
        # pkg/more.py
        import torch
        OLD = torch.set_default_dtype(X)
        UNUSED = Y
        """,
    "object of the standard library that a call changes": """
        # pkg/stage.py
        import os
        import pkg.more
        def run(): return os.environ["A"]
        # pkg/more.py
        import os
        OLD = os.environ.setdefault("A", str(X))
        PATH = os.environ.get("B", Y)
        """,
    "class attribute appended by constructor": """
        # pkg/stage.py
        import pkg.more
        from pkg.base import V
        def run(): return V.all
        # pkg/base.py
        class V:
            all = []
            def __init__(self, f): self.all.append(f)
        # pkg/more.py
        from pkg.base import V
        def f(): return X
        exact = V(f)
        def g(): return Y
        """,
    "class attribute appended by function": """
        # pkg/stage.py
        import pkg.more
        from pkg.base import V
        def run(): return V.all
        # pkg/base.py
        class V:
            all = []
        def register(f):
            V.all.append(f)
            return f
        # pkg/more.py
        from pkg.base import register
        def f(): return X
        exact = register(f)
        def g(): return Y
        """,
    "class attribute set by function": """
        # pkg/stage.py
        import pkg.more
        from pkg.base import V
        def run(): return V.all
        # pkg/base.py
        class V:
            all = None
        def register(f):
            V.all = f
            return f
        # pkg/more.py
        from pkg.base import register
        @register
        def f(): return X
        def g(): return Y
        """,
    "function given a table": """
        # pkg/stage.py
        import pkg.more
        from pkg.base import ALL
        def run(): return ALL
        # pkg/base.py
        ALL = {}
        def put(table, f):
            table["x"] = f
            return f
        # pkg/more.py
        from pkg.base import ALL, put
        def f(): return X
        exact = put(ALL, f)
        def g(): return Y
        """,
    "function that calls a keeping method": """
        # pkg/stage.py
        import pkg.more
        from pkg.base import ALL
        def run(): return ALL
        # pkg/base.py
        class R:
            def __init__(self): self.d = {}
            def keep(self, f): self.d[f.__name__] = f
        ALL = R()
        def note(f):
            ALL.keep(f)
            return f
        # pkg/more.py
        from pkg.base import note
        @note
        def f(): return X
        def g(): return Y
        """,
    "function that hands a table on": """
        # pkg/stage.py
        import pkg.more
        from pkg.base import ALL
        def run(): return ALL
        # pkg/base.py
        ALL = {}
        def put(t, f): t[f.__name__] = f
        def note(f):
            put(ALL, f)
            return f
        # pkg/more.py
        from pkg.base import note
        @note
        def f(): return X
        def g(): return Y
        """,
    "function that rebinds": """
        # pkg/stage.py
        import pkg.more
        import pkg.base
        def run(): return pkg.base.LAST
        # pkg/base.py
        LAST = None
        def note(f):
            global LAST
            LAST = f
            return f
        # pkg/more.py
        from pkg.base import note
        @note
        def f(): return X
        def g(): return Y
        """,
    "class decorator reads a table": """
        # pkg/stage.py
        import pkg.more
        def run(): return X
        # pkg/more.py
        TABLE = {"a": 1}
        def double(f):
            n = TABLE["a"]
            return lambda: f() * n
        @double
        def g(): return Y
        """,
    "name guard of another name": """
        # pkg/stage.py
        LEVEL = 0
        if __name__ == "pkg.stage":
            LEVEL = X
        def run(): return LEVEL
        """,
    "plain dataclass instance not used": """
        # pkg/stage.py
        from pkg.more import used
        def run(): return used
        # pkg/more.py
        from dataclasses import dataclass
        @dataclass
        class C:
            x: int
            def __post_init__(self): self.y = []; self.y.append(self.x)
        used = C(X)
        unused = C(Y)
        names = [str(c) for c in (unused,)]
        lowered = sorted(Y for _ in range(3))
        """,
}


@pytest.mark.parametrize("name", CASES)
def test_what_somebody_remembers_counts(project, name):
    project.check_that_only_x_counts(CASES[name])
