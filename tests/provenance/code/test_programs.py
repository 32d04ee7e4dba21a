"""Programs that are started with their text on the command line."""

import pytest

# X counts, Y does not, and nothing is loaded by a name that only a run knows.
SEEN = {
    "a literal": """
        # pkg/stage.py
        import subprocess, sys
        def run():
            return subprocess.run([sys.executable, "-c", "from pkg.worker import work; work()"])
        def other(): return Y
        # pkg/worker.py
        def work(): return X
        def other(): return Y
        """,
    "a name of the module, in a table of what runs": """
        # pkg/stage.py
        import sys
        RUNS = {"work": lambda: (sys.executable, "-c", TEXT, "an argument")}
        TEXT = "import pkg.worker as w\\nprint(w.work())"
        def run(name): return RUNS[name]()
        # pkg/worker.py
        def work(): return X
        def other(): return Y
        """,
    "the arguments of a call": """
        # pkg/stage.py
        import sys
        from asyncio import create_subprocess_exec as start
        def run(): return start(sys.executable, "-c", "from pkg.worker import work; work()")
        # pkg/worker.py
        def work(): return X
        def other(): return Y
        """,
    "its own text": """
        # pkg/stage.py
        import subprocess, sys
        TEXT = "print(X)"
        def run(): return subprocess.run([sys.executable, "-c", TEXT])
        # pkg/worker.py
        def work(): return Y
        """,
    "a shell's": """
        # pkg/stage.py
        import subprocess
        TEXT = "echo X; sed -n 's/a/b/p' pkg.worker"
        def run(): return subprocess.run(("/bin/sh", "-c", TEXT, "sh"))
        # pkg/worker.py
        def work(): return Y
        """,
}

HIDDEN = {
    "text with holes": """subprocess.run([sys.executable, "-c", f"import {NAMES[name]}"])""",
    "a parameter": """subprocess.run([sys.executable, "-c", name])""",
    "a name that a function binds, too": """subprocess.run([sys.executable, "-c", AGAIN])""",
    "no Python": """subprocess.run(["node", "-c", "require 'pkg.worker'"])""",
    "loads by name": """subprocess.run([sys.executable, "-c", LOADING])""",
    "a shell that starts Python": """subprocess.run(["sh", "-c", "python -m pkg.worker"])""",
    "a shell's text with holes": """subprocess.run(["sh", "-c", f"{name} {NAMES}"])""",
}


@pytest.mark.parametrize("name", SEEN)
def test_code_of_a_program_counts_as_far_as_it_reaches(project, name):
    project.check_that_only_x_counts(SEEN[name])
    closure = project.closure()
    assert not closure.loads_by_name
    assert closure.opaque == {}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_cannot_be_read_loads_by_name(project, name):
    text = f"""
        # pkg/stage.py
        import subprocess, sys
        NAMES = {{"worker": "pkg.worker"}}
        AGAIN = "print(1)"
        LOADING = "import importlib; importlib.import_module('pkg.' + 'worker')"
        def other(AGAIN=NAMES): return AGAIN
        def run(name): return NAMES, {HIDDEN[name]}
        # pkg/worker.py
        print(X)
        """
    before = project.digest(text, {"X": 1})
    assert project.digest(text, {"X": 2}) != before
    assert project.closure().loads_by_name


def test_a_programs_packages_are_those_of_the_closure(project):
    text = """
        # pkg/stage.py
        import subprocess, sys
        def run(): return subprocess.run([sys.executable, "-c", "import polars"])
        """
    project.write(text)
    assert "polars" in project.closure().packages
