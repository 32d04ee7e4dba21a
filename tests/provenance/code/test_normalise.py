"""What is written, as opposed to what is reached: which edits of one file count."""

import pytest

BASE = """
    # pkg/stage.py
    from pkg.maths import f
    RATE = 0.5
    def run(x, rate=RATE):
        total = x * rate
        if total:
            assert total > 0, "positive"
            return f(total)
        return None
    # pkg/maths.py
    import math
    def f(x): return math.sin(x)
    """

SAME = {
    "comment": [("total = x * rate", "total = x * rate  # scaled")],
    "docstrings": [
        ("# pkg/stage.py", '# pkg/stage.py\n    """Of the module."""'),
        ("total = x * rate", '"""Of the function."""\n        total = x * rate'),
    ],
    "formatting": [("total = x * rate", "total = (\n            x * rate\n        )\n")],
    "quotes": [('"positive"', "'positive'")],
    "spelling of a number": [("0.5", "5e-1")],
    "pass and ellipsis": [("total = x * rate", "pass\n        ...\n        total = x * rate")],
    "annotations of a function": [("(x, rate=RATE)", "(x: int, rate: float = RATE) -> float")],
    "annotation of a local": [("total = x * rate", "total: float = x * rate")],
    "declaration of a local": [("total = x * rate", "total: float\n        total = x * rate")],
    "annotation of a constant": [("RATE = 0.5", "RATE: float = 0.5")],
    "unrelated definitions": [("RATE = 0.5", "UNUSED = 1\n    def g(): return 2\n    RATE = 0.5")],
    "order of definitions": [
        ("RATE = 0.5", ""),
        ("from pkg.maths import f", "RATE = 0.5\n    from pkg.maths import f"),
    ],
    "unused import": [("RATE = 0.5", "import json\n    RATE = 0.5")],
    "import for type checkers": [
        ("RATE = 0.5", "if TYPE_CHECKING:\n        import torch\n    RATE = 0.5")
    ],
    "main guard": [("RATE = 0.5", 'RATE = 0.5\n    if __name__ == "__main__":\n        run(RATE)')],
    "spelling of an import": [("from pkg.maths import f", "from .maths import f as f")],
    "future import": [("from pkg", "from __future__ import annotations\n    from pkg")],
}

OTHER = {
    "operator": [("x * rate", "x + rate")],
    "default": [("rate=RATE", "rate=1")],
    "constant": [("0.5", "0.25")],
    "type of a constant": [("0.5", '"0.5"')],
    "decorator": [("def run", "@staticmethod\n    def run")],
    "keyword-only": [("x, rate", "x, *, rate")],
    "order of parameters": [("x, rate=RATE", "rate=RATE, x=1")],
    "assertion": [("total > 0", "total >= 0")],
    "message": [('"positive"', '"not positive"')],
    "branch": [("return None", "return 0")],
    "import of another symbol of another package": [("import math\n", "import cmath as math\n")],
    "import of another module": [("from pkg.maths import f", "from math import sin as f")],
    "async": [("def run", "async def run")],
    "order of statements": [
        ("return None", ""),
        ("total = x * rate", "return None\n        total = x * rate"),
    ],
}


def edited(edits):
    text = BASE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("name", SAME)
def test_edits_that_change_nothing(project, name):
    assert project.digest(edited(SAME[name])) == project.digest(BASE)


@pytest.mark.parametrize("name", OTHER)
def test_edits_that_change_something(project, name):
    assert project.digest(edited(OTHER[name])) != project.digest(BASE)


CLASS = """
    # pkg/stage.py
    from pydantic import BaseModel, field_validator
    class Config(BaseModel):
        rate: float = 0.5
        size: int
        @field_validator("size")
        def positive(cls, size): return size
        def scaled(self): return self.rate
    def run(): return Config()
    """


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ("class Config(BaseModel):", 'class Config(BaseModel):\n        """Parameters."""', False),
        ("size: int", 'size: int\n        """Of a batch."""', False),
        ("def scaled(self):", "def scaled(self) -> float:", False),
        ("size: int", "size: bool", True),
        ("size: int", "", True),
        ("rate: float = 0.5", "rate: float = 1", True),
        ("def positive(cls, size):", "def positive(cls, size: int):", True),
    ],
)
def test_classes_keep_the_annotations_that_something_reads(project, old, new, counts):
    assert old in CLASS
    assert (project.digest(CLASS.replace(old, new)) != project.digest(CLASS)) is counts


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(x=1): return x", "def f(x=2): return x"),
        ("def f(x, y=1): return x", "def f(x=1, y=1): return x"),
        ("def f(*x): return x", "def f(x): return x"),
        ("def f(x, /): return x", "def f(x): return x"),
        ("@cache\ndef f(x): return x", "def f(x): return x"),
        ("f = lambda: 1", "f = lambda: 1.0"),
        ("f = lambda: True", "f = lambda: 1"),
        ("f = 'a' 'b'", "f = 'a', 'b'"),
        ("f = b'a'", "f = 'a'"),
        ("f = {**g}", "f = {None: g}"),
        ("f = g[1:]", "f = g[:1]"),
        ("f = g or h and i", "f = (g or h) and i"),
        ("f = g.h", "f = h.g"),
        ("f = 'g'", "f = g"),
        ("f = g(*h)", "f = g(**h)"),
        ("f = f'{g}'", "f = f'{g!r}'"),
        ("f = lambda: g(1)()", "f = lambda: g()(1)"),
        ("f = lambda: g(1).h()", "f = lambda: g().h(1)"),
        ("async def f(): [g async for g in h]", "async def f(): [g for g in h]"),
        ("g = 1\nf = g\ng = 2", "g = 1\ng = 2\nf = g"),
        ("g = []\nf = [*g]\ng.append(1)", "g = []\ng.append(1)\nf = [*g]"),
        ("f = [g for h in i if j]", "f = (g for h in i if j)"),
        ("f = [g for h in i for j in k]", "f = [g for j in k for h in i]"),
        ("def f():\n  g()\n  h()", "def f():\n  if g(): h()"),
        ("def f():\n  global g\n  g = 1", "def f():\n  g = 1"),
        ("def f():\n  match g:\n    case None: h()", "def f():\n  match g:\n    case True: h()"),
        ("class f:\n  def g(self): pass", "class f:\n  g = None"),
        ("if g: f = 1", "if h: f = 1"),
        ("if g: f = 1\nelse: f = 2", "if g: f = 2\nelse: f = 1"),
        ("try: f = 1\nexcept A: f = 2", "try: f = 1\nexcept B: f = 2"),
        ("import a.b as f", "import a.c as f"),
        ("from a import f", "from b import f"),
    ],
)
def test_definitions_that_look_alike_differ(project, one, other):
    digests = set()
    for text in (one, other):
        project.write("\n# pkg/stage.py\n" + text + "\n")
        digests.add(project.closure("pkg.stage:f").symbols["pkg.stage:f"])
    assert len(digests) == 2


def test_equal_bodies_of_different_functions_make_different_closures(project):
    project.write(
        """
        # pkg/stage.py
        def near(): return 1
        def far(): return 1
        """
    )
    near, far = project.closure("pkg.stage:near"), project.closure("pkg.stage:far")
    assert near.symbols.keys() == {"pkg.stage:near"}
    assert near.digest != far.digest


def test_equal_functions_over_different_closures_differ(project):
    text = """
        # pkg/stage.py
        def make(n):
            def inner(): return n
            return inner
        one, two = make(1), make(2)
        """
    project.write(text)
    assert project.closure("pkg.stage:one").digest != project.closure("pkg.stage:two").digest


def test_line_endings_and_place_do_not_matter(project, tmp_path):
    before = project.digest(BASE)
    for file in (project.root / "pkg").glob("*.py"):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert project.closure().digest == before
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (project.root / "pkg").rename(moved / "pkg")
    assert type(project)(moved).closure().digest == before


def test_a_very_long_expression_is_no_problem(project):
    project.write("\n# pkg/stage.py\nx = 1\ndef run(): return " + " + ".join(["x"] * 2000) + "\n")
    assert list(project.closure().symbols) == ["pkg.stage:run", "pkg.stage:x"]
