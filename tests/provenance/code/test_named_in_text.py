"""What is found by text: modules, scripts, files, types in quotes. X counts, and Y does not."""

import pytest

CASES = {
    "plugins loaded by iter_modules": """
        # pkg/stage.py
        import pkg.plugins
        from pkg.reg import ALL
        def run(): return ALL
        # pkg/reg.py
        ALL = {}
        # pkg/plugins/a.py
        from pkg.reg import ALL
        ALL["a"] = X
        # pkg/plugins/__init__.py
        import pkgutil
        from importlib import import_module
        for found in pkgutil.iter_modules(__path__):
            import_module(f"{__name__}.{found.name}")
        """,
    "import_module with an f-string": """
        # pkg/stage.py
        from importlib import import_module
        def run(name): return import_module(f"pkg.verify.{name}").verify()
        # pkg/verify/exact.py
        def verify(): return X
        """,
    "import_module with a sum": """
        # pkg/stage.py
        from importlib import import_module
        def run(name): return import_module("pkg.verify." + name).verify()
        # pkg/verify/exact.py
        def verify(): return X
        """,
    "relative import_module": """
        # pkg/stage.py
        from importlib import import_module
        def run(name): return import_module("." + name, __package__).verify()
        # pkg/exact.py
        def verify(): return X
        """,
    "relative literal import_module": """
        # pkg/stage.py
        from importlib import import_module
        def run(name): return import_module(".exact", __package__).verify()
        # pkg/exact.py
        def verify(): return X
        """,
    "import_module renamed": """
        # pkg/stage.py
        from importlib import import_module as load
        def run(name): return load(NAMES[name]).verify()
        NAMES = {"a": "pkg.exact"}
        # pkg/exact.py
        def verify(): return X
        """,
    "import_module mapped": """
        # pkg/stage.py
        import importlib
        def run(): return [m.verify() for m in map(importlib.import_module, NAMES)]
        NAMES = ["pkg.exact"]
        # pkg/exact.py
        def verify(): return X
        """,
    "python -m": """
        # pkg/stage.py
        import subprocess, sys
        def run(): return subprocess.run([sys.executable, "-m", "pkg.worker"])
        # pkg/worker.py
        def work(): return X
        if __name__ == "__main__":
            work()
        """,
    "python -m main guard": """
        # pkg/stage.py
        import subprocess, sys
        def run(): return subprocess.run([sys.executable, "-m", "pkg.worker"])
        # pkg/worker.py
        if __name__ == "__main__":
            print(X)
        """,
    "script beside": """
        # pkg/stage.py
        import subprocess, sys
        from pathlib import Path
        def run(): return subprocess.run([sys.executable, Path(__file__).with_name("worker.py")])
        # pkg/worker.py
        print(X)
        """,
    "python -c": """
        # pkg/stage.py
        import subprocess, sys
        TEXT = "from pkg.worker import work; work()"
        def run(): return subprocess.run([sys.executable, "-c", TEXT])
        # pkg/worker.py
        def work(): return X
        """,
    "docstring read as data": '''
        # pkg/stage.py
        from pkg.prompts import grade
        def run(): return grade.__doc__
        # pkg/prompts.py
        def grade():
            """Grade X points."""
        ''',
    "own module docstring": '''
        # pkg/stage.py
        """Grade X points."""
        def run(): return __doc__
        ''',
    "getdoc": '''
        # pkg/stage.py
        import inspect
        def run(): return inspect.getdoc(grade)
        def grade():
            """Grade X points."""
        ''',
    "getsource": '''
        # pkg/stage.py
        import inspect
        def run(): return inspect.getsource(grade)
        def grade():
            """Grade X points."""
        ''',
    "tool schema from annotations": """
        # pkg/stage.py
        from typing import get_type_hints, Literal
        def run(): return get_type_hints(grade)
        def grade(points: Literal[X]): return 1
        """,
    "transformers get_json_schema": '''
        # pkg/stage.py
        from transformers.utils import get_json_schema
        def run(): return get_json_schema(grade)
        def grade(points: int):
            """Grade X points."""
        ''',
    "validate_call not as decorator": """
        # pkg/stage.py
        from typing import Literal
        from pydantic import validate_call
        def grade(points: Literal[X]): return 1
        checked = validate_call(grade)
        def run(): return checked(3)
        """,
    "signature annotations": """
        # pkg/stage.py
        import inspect
        def run(): return [p.annotation for p in inspect.signature(grade).parameters.values()]
        def grade(points: "X"): return 1
        """,
    "class decorator that reads annotations of methods": """
        # pkg/stage.py
        def inject(cls):
            cls.kinds = cls.__init__.__annotations__
            return cls
        @inject
        class A:
            def __init__(self, x: "X"): pass
        def run(): return A.kinds
        """,
    "star import in with": """
        # pkg/stage.py
        from contextlib import suppress
        with suppress(ImportError):
            from pkg.maths import *
        def run(): return helper()
        # pkg/maths.py
        def helper(): return X
        """,
    "star import of package with submodules in all": """
        # pkg/stage.py
        from pkg.deep import *
        def run(): return low.f()
        # pkg/deep/low.py
        def f(): return X
        # pkg/deep/__init__.py
        __all__ = ["low"]
        """,
    "eval of a module's name": """
        # pkg/stage.py
        import pkg.maths as m
        def run(text): return eval(text)
        # pkg/maths.py
        def f(): return X
        """,
    "globals to a module": """
        # pkg/stage.py
        import pkg.maths as m
        def run(text): return globals()["m"].f()
        # pkg/maths.py
        def f(): return X
        """,
    "resources of another package": """
        # pkg/a/stage.py
        # pkg/stage.py
        from pkg.a.inner import text
        def run(): return text()
        # pkg/a/inner.py
        from importlib import resources
        def text(): return resources.files("pkg.b").joinpath("x.txt").read_text()
        # pkg/b/x.txt
        X
        """,
    "file in another folder": """
        # pkg/stage.py
        from pkg.a.inner import text
        def run(): return text()
        # pkg/a/inner.py
        from pathlib import Path
        def text(): return (Path(__file__).parent.parent / "b" / "x.txt").read_text()
        # pkg/b/x.txt
        X
        """,
    "parents[1]": """
        # pkg/stage.py
        from pkg.a.inner import text
        def run(): return text()
        # pkg/a/inner.py
        from pathlib import Path
        def text(): return (Path(__file__).parents[1] / "b" / "x.txt").read_text()
        # pkg/b/x.txt
        X
        """,
    "name assembled from pieces": """
        # pkg/stage.py
        import importlib
        BASE = "pkg"
        def run(k): return importlib.import_module(".".join([BASE, "m"])).f()
        # pkg/m.py
        def f(): return X
        """,
    "name assembled from package": """
        # pkg/stage.py
        from pkg.reg.load import load
        def run(k): return load(k).f()
        # pkg/reg/load.py
        import importlib
        def load(k): return importlib.import_module(f"{__package__}.{k}")
        # pkg/reg/m.py
        def f(): return X
        """,
    "format": """
        # pkg/stage.py
        import importlib
        def run(k): return importlib.import_module("pkg.reg.{}".format(k)).f()
        # pkg/reg/m.py
        def f(): return X
        """,
    "target in dotted form": """
        # pkg/stage.py
        import importlib
        T = {"a": "pkg.reg.m.f"}
        def run(k):
            m, _, f = T[k].rpartition(".")
            return getattr(importlib.import_module(m), f)()
        # pkg/reg/m.py
        def f(): return X
        """,
    "pydantic ImportString / pkgutil.resolve_name": """
        # pkg/stage.py
        import pkgutil
        def run(): return pkgutil.resolve_name("pkg.reg.m:f")()
        # pkg/reg/m.py
        def f(): return X
        """,
    "spec_from_file_location": """
        # pkg/stage.py
        import importlib.util
        from pathlib import Path
        def run():
            s = importlib.util.spec_from_file_location("m", Path(__file__).parent / "m.py")
            m = importlib.util.module_from_spec(s); s.loader.exec_module(m)
            return m.f()
        # pkg/m.py
        def f(): return X
        """,
    "exec of a file": """
        # pkg/stage.py
        from pathlib import Path
        def run(): exec((Path(__file__).parent / "m.py").read_text())
        # pkg/m.py
        print(X)
        """,
    "nested quoted annotation": """
        # pkg/stage.py
        from pkg.config import Config
        def run(): return Config()
        # pkg/config.py
        from pydantic import BaseModel
        class Config(BaseModel):
            inner: list["Inner"] = []
        class Inner(BaseModel): size: int = X
        """,
    "quoted inside Optional Annotated": """
        # pkg/stage.py
        from typing import Annotated, Optional
        class Config:
            inner: Optional[Annotated["Inner", 3]] = None
        class Inner: size: int = X
        def run(): return Config()
        """,
    "return type of Annotated alias in entry": """
        # pkg/stage.py
        from pkg.config import Cs
        def run(c: Cs): return c[0].f()
        # pkg/config.py
        class C:
            def f(self): return X
        Cs = list["C"]
        """,
    "union of quoted types": """
        # pkg/stage.py
        from typing import Union
        from pkg.config import C
        def run(c: Union["C", None]): return c.f()
        # pkg/config.py
        class C:
            def f(self): return X
        """,
    "own folder glob": """
        # pkg/stage.py
        import pkg.reg
        def run(): return pkg.reg.ALL
        # pkg/reg/__init__.py
        from importlib import import_module
        from pathlib import Path
        FILES = Path(__file__).parent.glob("[!_]*.py")
        ALL = [import_module(f"pkg.reg.{file.stem}") for file in FILES]
        # pkg/reg/a.py
        v = X
        """,
    "module dict": """
        # pkg/stage.py
        from pkg import maths
        def run(text): return maths.__dict__[text]()
        # pkg/maths.py
        def f(): return X
        """,
    "multiprocess target by string": """
        # pkg/stage.py
        from pkg.pool import submit
        def run(): return submit("pkg.m:f")
        # pkg/pool.py
        import importlib
        def submit(s):
            a, b = s.split(":")
            return getattr(importlib.import_module(a), b)()
        # pkg/m.py
        def f(): return X
        """,
    "lazy proxies": """
        # pkg/stage.py
        from pkg.lazy import Lazy
        m = Lazy("pkg.m")
        def run(): return m.f()
        # pkg/lazy.py
        import importlib
        class Lazy:
            def __init__(self, n): self.n = n
            def __getattr__(self, k): return getattr(importlib.import_module(self.n), k)
        # pkg/m.py
        def f(): return X
        """,
}


@pytest.mark.parametrize("name", CASES)
def test_what_text_leads_to_counts(project, name):
    project.check_that_only_x_counts(CASES[name])
