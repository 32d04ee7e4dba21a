"""Small projects put together at random: each fragment reads one value by one way of Python.

In a fragment `V` stands for a value that the stage comes by, `W` for one that it does not, `N` for
a number that makes names unique. A line `# FILE` starts a file; `expr` is what the stage computes.
"""

from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True)
class Fragment:
    """Files, what the stage imports of them, and the expression by which it uses them."""

    name: str
    files: str
    imports: str
    expr: str


def _all(*rows: tuple[str, str, str, str]) -> tuple[Fragment, ...]:
    return tuple(Fragment(name, dedent(files), dedent(i), e) for name, files, i, e in rows)


_TWO = "def f(): return V\ndef g(): return W\n"

FRAGMENTS = _all(
    ("from import", f"# lib/mN.py\n{_TWO}", "from lib.mN import f as fN", "fN()"),
    ("import as", f"# lib/mN.py\n{_TWO}", "import lib.mN as aN", "aN.f()"),
    ("dotted import", f"# lib/mN.py\n{_TWO}", "import lib.mN", "lib.mN.f()"),
    (
        "import in a function",
        f"# lib/mN.py\n{_TWO}",
        "def fN():\n    from lib.mN import f\n    return f()",
        "fN()",
    ),
    ("star import", "# lib/mN.py\ndef starN(): return V\n", "from lib.mN import *", "starN()"),
    (
        "relative import",
        f"# lib/mN.py\nfrom .oN import f\n# lib/oN.py\n{_TWO}",
        "from lib.mN import f as fN",
        "fN()",
    ),
    (
        "re-export",
        f"# lib/pN/__init__.py\nfrom lib.pN.inner import f\n# lib/pN/inner.py\n{_TWO}",
        "from lib.pN import f as fN",
        "fN()",
    ),
    (
        "fallback import",
        f"# lib/mN.py\n{_TWO}",
        "try:\n    import no_such_moduleN as aN\nexcept ImportError:\n    import lib.mN as aN",
        "aN.f()",
    ),
    ("module at the root", f"# rootN.py\n{_TWO}", "import rootN", "rootN.f()"),
    ("folder without init", f"# space/hN.py\n{_TWO}", "from space.hN import f as fN", "fN()"),
    (
        "deep folder without init",
        f"# space/a/b/hN.py\n{_TWO}",
        "import space.a.b.hN as aN",
        "aN.f()",
    ),
    ("getattr by literal", f"# lib/mN.py\n{_TWO}", "import lib.mN as aN", "getattr(aN, 'f')()"),
    (
        "getattr by a made-up name",
        f"# lib/mN.py\n{_TWO}",
        "import lib.mN as aN\nnameN = ''.join(['f'])",
        "getattr(aN, nameN)()",
    ),
    (
        "registry by decorator",
        "# lib/rN.py\nALL = {}\ndef register(f):\n    ALL[f.__name__] = f\n    return f\n"
        "# lib/mN.py\nfrom lib.rN import register\n@register\ndef f(): return V\n",
        "import lib.mN\nfrom lib.rN import ALL as allN",
        "allN['f']()",
    ),
    (
        "registry as a dict",
        "# lib/mN.py\ndef f(): return V\ndef g(): return 1\nALL = {'f': f, 'g': g}\n",
        "from lib.mN import ALL as allN",
        "allN['f']()",
    ),
    (
        "partial",
        "# lib/mN.py\nfrom functools import partial\ndef add(a, b): return a + b\n"
        "f = partial(add, V)\n",
        "from lib.mN import f as fN",
        "fN(1)",
    ),
    (
        "decorator",
        "# lib/dN.py\nimport functools\ndef more(f):\n    @functools.wraps(f)\n"
        "    def inner(*args): return f(*args) + V\n    return inner\n"
        "# lib/mN.py\nfrom lib.dN import more\n@more\ndef f(): return 1\n",
        "from lib.mN import f as fN",
        "fN()",
    ),
    (
        "inherited method",
        "# lib/bN.py\nclass Base:\n    def f(self): return V\n    def g(self): return 2\n"
        "# lib/mN.py\nfrom lib.bN import Base\nclass Child(Base):\n    pass\n",
        "from lib.mN import Child as ChildN",
        "ChildN().f()",
    ),
    (
        "override",
        "# lib/bN.py\nclass Base:\n    def f(self): return self.g()\n    def g(self): return 2\n"
        "# lib/mN.py\nfrom lib.bN import Base\nclass Child(Base):\n    def g(self): return V\n",
        "from lib.mN import Child as ChildN",
        "ChildN().f()",
    ),
    (
        "__init_subclass__",
        "# lib/bN.py\nALL = []\nclass Base:\n    def __init_subclass__(cls): ALL.append(cls)\n"
        "# lib/mN.py\nfrom lib.bN import Base\nclass Child(Base):\n    x = V\n",
        "import lib.mN\nfrom lib.bN import ALL as allN",
        "[each.x for each in allN]",
    ),
    (
        "__subclasses__ of another module's class",
        "# lib/bN.py\nclass Base:\n    pass\n"
        "# lib/mN.py\nfrom lib.bN import Base\nclass Child(Base):\n    x = V\n",
        "import lib.mN\nfrom lib.bN import Base as BaseN",
        "[each.x for each in BaseN.__subclasses__()]",
    ),
    (
        "singledispatch",
        "# lib/bN.py\nfrom functools import singledispatch\n@singledispatch\n"
        "def f(x): return 0\n"
        "# lib/mN.py\nfrom lib.bN import f\n@f.register\ndef _(x: int): return V\n",
        "import lib.mN\nfrom lib.bN import f as fN",
        "fN(3)",
    ),
    (
        "default argument",
        "# lib/mN.py\ndef f(x=V): return x\n",
        "from lib.mN import f as fN",
        "fN()",
    ),
    ("lambda", "# lib/mN.py\nf = lambda: V\ng = lambda: W\n", "from lib.mN import f as fN", "fN()"),
    (
        "constant",
        "# lib/mN.py\nX = V\nY = W\nZ = {'a': [X]}\n",
        "from lib.mN import Z as zN",
        "zN['a']",
    ),
    (
        "dataclass default",
        "# lib/mN.py\nfrom dataclasses import dataclass, field\n@dataclass\nclass C:\n"
        "    x: int = V\n    y: list = field(default_factory=lambda: [1])\n",
        "from lib.mN import C as CN",
        "(CN().x, CN().y)",
    ),
    (
        "property and operator",
        "# lib/mN.py\nclass C:\n    @property\n    def x(self): return V\n"
        "    def __add__(self, other): return other + self.x\n",
        "from lib.mN import C as CN",
        "CN() + 1",
    ),
    (
        "enum and match",
        "# lib/mN.py\nfrom enum import Enum\nclass E(Enum):\n    A = V\n    B = 1\n"
        "def f(e):\n    match e:\n        case E.A:\n            return e.value\n    return 0\n",
        "from lib.mN import E as EN, f as fN",
        "fN(EN.A)",
    ),
    (
        "import_module by literal",
        f"# lib/mN.py\n{_TWO}",
        "import importlib",
        "importlib.import_module('lib.mN').f()",
    ),
    (
        "import_module by an f-string",
        f"# lib/mN.py\n{_TWO}",
        "import importlib\nwhichN = 'm' + 'N'",
        "importlib.import_module(f'lib.{whichN}').f()",
    ),
    (
        "import_module by parts",
        f"# lib/mN.py\n{_TWO}",
        "import importlib",
        "importlib.import_module('.'.join(['lib', 'mN'])).f()",
    ),
    (
        "sys.modules",
        f"# lib/mN.py\n{_TWO}",
        "import sys\nimport lib.mN",
        "sys.modules['lib.mN'].f()",
    ),
    (
        "iter_modules",
        f"# plug/pN/__init__.py\n# plug/pN/one.py\n{_TWO}# plug/__init__.py\n",
        "import importlib, pkgutil\nimport plug.pN",
        "[importlib.import_module(f'plug.pN.{m.name}').f() for m in "
        "pkgutil.iter_modules(plug.pN.__path__)]",
    ),
    (
        "module __getattr__",
        "# lib/mN.py\ndef _made(): return V\ndef __getattr__(name): return _made\n",
        "import lib.mN as aN",
        "aN.anything()",
    ),
    (
        "patched at import",
        "# lib/bN.py\ndef f(): return 1\n# lib/mN.py\nimport lib.bN\nlib.bN.f = lambda: V\n",
        "import lib.mN\nimport lib.bN as bN",
        "bN.f()",
    ),
    ("eval", "# lib/mN.py\ndef f(): return V\n", "from lib.mN import f as fN", "eval('fN()')"),
    ("globals", f"# lib/mN.py\n{_TWO}", "from lib.mN import f as fN", "globals()['fN']()"),
    (
        "vars of a module",
        f"# lib/mN.py\n{_TWO}",
        "import lib.mN as aN",
        "vars(aN)['f']()",
    ),
    (
        "counted at import",
        "# lib/bN.py\nTOTAL = [0]\n# lib/mN.py\nfrom lib.bN import TOTAL\nTOTAL[0] += V\n",
        "import lib.mN\nfrom lib.bN import TOTAL as totalN",
        "totalN[0]",
    ),
    (
        "file beside the module",
        "# lib/dataN.json\nV\n# lib/mN.py\nfrom pathlib import Path\n"
        "def f(): return Path(__file__).with_name('dataN.json').read_text()\n",
        "from lib.mN import f as fN",
        "fN()",
    ),
    (
        "resource",
        "# lib/dataN.txt\nV\n# lib/__init__.py\n",
        "import importlib.resources",
        "importlib.resources.files('lib').joinpath('dataN.txt').read_text()",
    ),
    ("file by a literal path", "# assets/aN.json\nV\n", "", "open('assets/aN.json').read()"),
    (
        "file above the package",
        "# assets/bN.json\nV\n",
        "from pathlib import Path",
        "(Path(__file__).resolve().parents[1] / 'assets' / 'bN.json').read_text()",
    ),
    (
        "file by a made-up path",
        "# assets/cN.json\nV\n",
        "nameN = '/'.join(['assets', 'c' + 'N' + '.json'])",
        "open(nameN).read()",
    ),
    (
        "file listed by a made-up folder",
        "# listed/N/x.txt\nV\n",
        "import os\nfolderN = os.sep.join(['listed', str(N)])",
        "[open(os.path.join(folderN, each)).read() for each in os.listdir(folderN)]",
    ),
    (
        "script",
        "# scripts/sN.py\nprint(V)\n",
        "import subprocess, sys",
        "subprocess.run([sys.executable, 'scripts/sN.py'], capture_output=True).stdout",
    ),
    (
        "runpy",
        "# scripts/tN.py\nX = V\nY = W\n",
        "import runpy",
        "runpy.run_path('scripts/tN.py')['X']",
    ),
    (
        "declared variable",
        "# ENVIRONMENT\nDECLARED_N=V\n",
        "import os",
        "os.environ.get('DECLARED_N')",
    ),
    ("other variable", "# ENVIRONMENT\nOTHER_N=V\n", "import os", "os.environ.get('OTHER_N')"),
    (
        "variable by a made-up name",
        "# ENVIRONMENT\nMADE_N=V\n",
        "import os\nnameN = '_'.join(['MADE', str(N)])",
        "os.environ.get(nameN)",
    ),
    ("package", "# PACKAGE distN\ndef f(): return V\n", "import distN", "distN.f()"),
    (
        "package behind a package",
        "# PACKAGE behindN\ndef f(): return V\n# PACKAGE frontN requires behindN\n"
        "import behindN\ndef f(): return behindN.f()\n",
        "import frontN",
        "frontN.f()",
    ),
)
