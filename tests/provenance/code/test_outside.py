"""What code reads beside its packages: modules however they are found, files by their names."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from posttrain.provenance.code import CodeClosure, CodeReader

STAGE = "tasks/curate/stage.py"

# Name -> the stage's text, the file that is edited, what else lies there.
COUNTED: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "module at the root": ("import mylib\ndef run(): return mylib.X", "mylib.py", {}),
    "module at the root, imported inside of a function": (
        "def run():\n    from mylib import X\n    return X",
        "mylib.py",
        {},
    ),
    "folder without __init__": ("from helpers.h import X\ndef run(): return X", "helpers/h.py", {}),
    "folder in a folder without __init__": (
        "from a.b.c import X\ndef run(): return X",
        "a/b/c.py",
        {},
    ),
    "module at the root imports another": (
        "import one\ndef run(): return one.f()",
        "two.py",
        {"one.py": "import two\ndef f(): return two.X"},
    ),
    "import_module with an f-string": (
        """
        from importlib import import_module
        def run(name): return import_module(f"helpers.{name}").X
        """,
        "helpers/h.py",
        {},
    ),
    "subprocess": (
        """
        import subprocess, sys
        def run(): return subprocess.run([sys.executable, "scripts/x.py"])
        """,
        "scripts/x.py",
        {},
    ),
    "what a script imports from beside it": (
        """
        import subprocess, sys
        def run(): return subprocess.run([sys.executable, "scripts/x.py"])
        """,
        "scripts/y.py",
        {"scripts/x.py": "from y import X\nprint(X)"},
    ),
    "runpy": (
        'import runpy\ndef run(): return runpy.run_path("scripts/x.py")["X"]',
        "scripts/x.py",
        {},
    ),
    "script whose name is no module's": (
        'import runpy\ndef run(): return runpy.run_path("scripts/my-x.py")["X"]',
        "scripts/my-x.py",
        {},
    ),
    "path from the root": (
        'from pathlib import Path\ndef run(): return Path("tasks/curate/w.json").read_text()',
        "tasks/curate/w.json",
        {},
    ),
    "open of a file at the root": (
        'def run(): return open("prompt.txt").read()',
        "prompt.txt",
        {},
    ),
    "open of a file without a suffix": (
        'def run(): return open("VERSION").read()',
        "VERSION",
        {},
    ),
    "path in a constant": (
        'WHERE = "assets/w.json"\ndef run(): return open(WHERE).read()',
        "assets/w.json",
        {},
    ),
    "above the package": (
        """
        from pathlib import Path
        def run(): return (Path(__file__).resolve().parents[2] / "assets" / "w.json").read_text()
        """,
        "assets/w.json",
        {},
    ),
    "joined by os.path": (
        """
        import os
        ROOT = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
        def run(): return open(os.path.join(ROOT, "assets", "w.json")).read()
        """,
        "assets/w.json",
        {},
    ),
    "joinpath": (
        """
        from pathlib import Path
        def run(): return Path.cwd().joinpath("assets", "w.json").read_text()
        """,
        "assets/w.json",
        {},
    ),
    "f-string below a folder": (
        'def run(name): return open(f"assets/{name}.json").read()',
        "assets/w.json",
        {},
    ),
    "glob": ('import glob\ndef run(): return glob.glob("assets/*.json")', "assets/w.json", {}),
    "folder": (
        'from pathlib import Path\ndef run(): return [*Path("assets").iterdir()]',
        "assets/w.json",
        {},
    ),
    "beside a module at the root": (
        "import mylib\ndef run(): return mylib.read()",
        "w.json",
        {
            "mylib.py": """
            from pathlib import Path
            def read(): return Path(__file__).with_name("w.json").read_text()
            """
        },
    ),
    "getfile": (
        """
        import inspect
        from pathlib import Path
        from tasks.other.f import f
        def run(name): return Path(inspect.getfile(f)).with_name(name).read_text()
        """,
        "tasks/other/w.json",
        {"tasks/other/f.py": "def f(): return 1", "tasks/other/__init__.py": ""},
    ),
    "__spec__.origin": (
        """
        from pathlib import Path
        def run(name): return Path(__spec__.origin).with_name(name).read_text()
        """,
        "tasks/curate/w.json",
        {},
    ),
    "package.__path__[0]": (
        """
        from pathlib import Path
        import tasks.other
        def run(name): return Path(tasks.other.__path__[0], name).read_text()
        """,
        "tasks/other/w.json",
        {"tasks/other/__init__.py": ""},
    ),
}


def closure(root: Path) -> CodeClosure:
    return CodeReader(root, packages=("posttrain", "flows", "tasks", "helpers")).closure(
        "tasks.curate.stage:run"
    )


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))


@pytest.mark.parametrize("name", COUNTED)
def test_what_a_stage_reads_is_in_its_closure(tmp_path, name):
    stage, edited, others = COUNTED[name]
    files = {STAGE: stage, "tasks/__init__.py": "", "tasks/curate/__init__.py": "", **others}
    write(tmp_path, {**files, edited: "X = 11"})
    before = closure(tmp_path)
    write(tmp_path, {edited: "X = 12"})
    after = closure(tmp_path)
    assert after.digest != before.digest
    assert tmp_path / edited in after.files
    write(tmp_path, {edited: "X = 11"})
    assert closure(tmp_path).digest == before.digest


@pytest.mark.slow
def test_a_package_that_is_installed_goes_before_a_folder_without_init(tmp_path):
    write(tmp_path, {STAGE: "import numpy\ndef run(): return numpy.X", "numpy/x.py": "X = 1"})
    found = closure(tmp_path)
    assert "numpy" in found.packages
    assert not any(file.is_relative_to(tmp_path / "numpy") for file in found.files)


def test_a_module_hides_a_folder_of_its_name_that_has_no_init(tmp_path):
    text = """
    try:
        from helpers.h import X
    except ImportError:
        X = 0
    def run(): return X
    """
    packages = {"tasks/__init__.py": "", "tasks/curate/__init__.py": ""}
    write(tmp_path, {STAGE: text, "helpers/h.py": "X = 1", **packages})
    assert "helpers.h:X" in closure(tmp_path).symbols
    write(tmp_path, {"helpers.py": "Y = 1"})
    assert "helpers.h:X" not in closure(tmp_path).symbols


def test_what_runs_write_is_no_file_that_code_reads(tmp_path):
    made = tmp_path / "data"
    write(tmp_path, {STAGE: 'def run(): return open("data/a/out.json")', "data/a/out.json": "1"})
    reader = CodeReader(tmp_path, packages=("tasks",), made=[made])
    assert reader.closure("tasks.curate.stage:run").data == frozenset()


def test_files_above_the_package_that_cannot_be_told_are_said(tmp_path):
    text = "from pathlib import Path\ndef run(n): return Path(__file__).parents[2].joinpath(n)"
    write(tmp_path, {STAGE: text, "tasks/__init__.py": "", "tasks/curate/__init__.py": ""})
    assert "above its package" in closure(tmp_path).opaque["tasks.curate.stage"]


def test_variables_that_code_reads(tmp_path):
    text = """
    import os
    from os import environ
    A = os.environ["A"]
    os.environ["SET"] = "1"
    os.environ.update(ALSO="1")
    def run(): return os.environ.get("B", "1"), os.getenv("C"), "D" in environ
    def never(): return os.environ["E"]
    """
    packages = {"tasks/__init__.py": "", "tasks/curate/__init__.py": ""}
    write(tmp_path, {STAGE: text, **packages})
    assert {*closure(tmp_path).environment} == {"A", "B", "C", "D"}
    write(tmp_path, {STAGE: text.replace('os.getenv("C")', "os.getenv(name)")})
    assert {*closure(tmp_path).environment} == {"A", "B", "D", "*"}
