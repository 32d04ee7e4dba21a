"""What a function reaches inside of modules: X counts, and Y does not."""

import pytest

CASES = {
    "direct call": """
        # pkg/stage.py
        def run(): return helper()
        def helper(): return X
        def other(): return Y
        """,
    "__all__ is read by nobody": """
        # pkg/stage.py
        __all__ = ["run", "Y"]
        def run(): return X
        """,
    "method of a class": """
        # pkg/stage.py
        def run(): return Model().fit()
        class Model:
            def fit(self): return self._loss()
            def _loss(self): return X
        class Other:
            def fit(self): return Y
        """,
    "function that a method calls": """
        # pkg/stage.py
        def run(): return Model().fit()
        class Model:
            def fit(self): return loss()
        def loss(): return X
        def gain(): return Y
        """,
    "base class": """
        # pkg/stage.py
        from pkg.base import Base
        class Model(Base): pass
        def run(): return Model().fit()
        # pkg/base.py
        class Base:
            def fit(self): return X
        class Other:
            def fit(self): return Y
        """,
    "generic base and metaclass": """
        # pkg/stage.py
        class Meta(type):
            rate = X
        class Base: pass
        class Model(Base, metaclass=Meta): pass
        class Other: rate = Y
        def run(): return Model.rate
        """,
    "decorator": """
        # pkg/stage.py
        def twice(function): return lambda: X * function()
        def thrice(function): return lambda: Y * function()
        @twice
        def run(): return 1
        """,
    "decorator with arguments": """
        # pkg/stage.py
        def times(n): return lambda function: function
        RATE, OTHER = X, 0
        UNUSED = Y
        @times(RATE)
        def run(): return 1
        """,
    "default argument": """
        # pkg/stage.py
        def default(): return X
        def other(): return Y
        def run(rate=default(), *, more=None): return rate
        """,
    "keyword default": """
        # pkg/stage.py
        RATE = X
        UNUSED = Y
        def run(*, rate=RATE): return rate
        """,
    "module constant": """
        # pkg/stage.py
        RATE = X
        UNUSED = Y
        def run(): return RATE
        """,
    "constant computed from others": """
        # pkg/stage.py
        def base(): return X
        def other(): return Y
        BASE = base()
        RATE = BASE * 2
        def run(): return RATE
        """,
    "constant built up in steps": """
        # pkg/stage.py
        RATE = 1
        RATE += X
        UNUSED = 1
        UNUSED += Y
        def run(): return RATE
        """,
    "unpacked constants": """
        # pkg/stage.py
        (a, *rest), c = (1, X), 2
        d, e = Y, 4
        def run(): return rest
        """,
    "registry of functions": """
        # pkg/stage.py
        from pkg.verify import VERIFIERS
        def run(name): return VERIFIERS[name]()
        # pkg/verify.py
        def exact(): return X
        def loose(): return 1
        def unlisted(): return Y
        VERIFIERS = {"exact": exact, "loose": loose}
        """,
    "alias": """
        # pkg/stage.py
        def f(): return X
        def h(): return Y
        g = f
        def run(): return g()
        """,
    "lambda": """
        # pkg/stage.py
        def f(): return X
        def h(): return Y
        def run(): return (lambda h: f() + h)(1)
        """,
    "comprehension": """
        # pkg/stage.py
        def f(x): return X
        def h(x): return Y
        def run(xs): return [f(h) for h in xs if h]
        """,
    "iterable of a comprehension that reuses its name": """
        # pkg/stage.py
        items = [X]
        other = [Y]
        def run(): return [items for items in items]
        """,
    "nested function": """
        # pkg/stage.py
        def f(): return X
        def h(): return Y
        def run():
            h = 1
            def inner(): return f() + h
            return inner()
        """,
    "parameter that shadows a function": """
        # pkg/stage.py
        def loss(): return Y
        def run(loss): return loss() + X
        """,
    "local that shadows a function before its assignment": """
        # pkg/stage.py
        def loss(): return Y
        def run():
            for _ in range(X):
                loss = 1
            return loss
        """,
    "method that shadows nothing in other methods": """
        # pkg/stage.py
        def loss(): return X
        def gain(): return Y
        class Model:
            def loss(self): return loss()
        def run(): return Model().loss()
        """,
    "walrus, with, except and match bind": """
        # pkg/stage.py
        def a(): return Y
        def b(): return Y
        def c(): return Y
        def d(): return Y
        def e(): return Y
        def run(items):
            if any((a := item) for item in items):
                with open(a) as b:
                    b.read()
            try:
                pass
            except ValueError as c:
                print(c)
            match items:
                case [d, *e]:
                    return d, e, X
        """,
    "test of a conditional definition": """
        # pkg/stage.py
        FLAG = X
        UNUSED = Y
        if FLAG:
            def helper(): return 1
        else:
            def helper(): return 2
        def run(): return helper()
        """,
    "dataclass fields": """
        # pkg/stage.py
        from dataclasses import dataclass, field
        def fresh(): return [X]
        def stale(): return [Y]
        @dataclass
        class State:
            items: list = field(default_factory=fresh)
        def run(): return State()
        """,
    "annotations of fields, also quoted": """
        # pkg/stage.py
        from __future__ import annotations
        from pkg.config import Inner, Other, Unused
        from pydantic import BaseModel
        class Config(BaseModel):
            inner: Inner | None = None
            other: "list[Other]"
        def run(): return Config()
        # pkg/config.py
        class Inner: size = 1
        class Other: size = X
        class Unused: size = Y
        """,
    "type of an argument of the entry": """
        # pkg/stage.py
        from __future__ import annotations
        from typing import TYPE_CHECKING
        from pkg.config import Config, Unused
        if TYPE_CHECKING:
            from pkg.config import Other
        def helper(unused: Unused) -> Unused: return 1
        def run(config: Config, other: list[Other]): return config.rate() + helper(1)
        # pkg/config.py
        class Config:
            def rate(self): return 1
        class Other:
            def rate(self): return X
        class Unused: size = Y
        """,
    "global state": """
        # pkg/stage.py
        COUNT = X
        UNUSED = Y
        def run():
            global COUNT
            COUNT = 1
        """,
    "nonlocal name of an outer function": """
        # pkg/stage.py
        def f(): return X
        def run():
            from pkg import stage as m
            def inner():
                nonlocal m
                m = m.f()
            return inner
        def other(): return Y
        """,
    "global name that an outer function binds too": """
        # pkg/stage.py
        count = X
        def run():
            count = 1
            def inner():
                global count
                return count
            return inner()
        def other(): return Y
        """,
    "overloads and redefinitions": """
        # pkg/stage.py
        def helper(): return X
        helper = lru_cache(helper)
        def other(): return Y
        def run(): return helper()
        """,
    "async and generators": """
        # pkg/stage.py
        async def source():
            yield X
        async def other():
            yield Y
        async def gather(): return [item async for item in source()]
        def run(): return gather()
        """,
}


@pytest.mark.parametrize("name", CASES)
def test_an_edit_counts_where_the_entry_reaches_and_only_there(project, name):
    project.check_that_only_x_counts(CASES[name])


def test_symbols_are_exactly_what_is_reached(project):
    project.write(
        """
        # pkg/stage.py
        import json
        from pkg.maths import helper
        import pkg.unused
        def run(): return helper(json.dumps)
        # pkg/maths.py
        RATE = 1
        def helper(f): return Inner(RATE)
        class Inner: pass
        def other(): return Inner
        # pkg/unused.py
        def f(): return 1
        """
    )
    assert list(project.closure().symbols) == [
        "pkg.maths:Inner",
        "pkg.maths:RATE",
        "pkg.maths:helper",
        "pkg.stage:helper",
        "pkg.stage:json",
        "pkg.stage:run",
    ]
