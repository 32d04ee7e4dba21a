"""Where a system lacks what Linux has: what only looks works, the rest is refused in a sentence.

There is no macOS and no Windows here. A process stands in for one by lacking what they lack:
modules, functions of os and signal, and the system's name; what else differs is not seen.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# What is not there is not found; what has been found by Python itself goes.
_LACKS = """
import os, platform, signal, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {modules}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
for name in {modules}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
for module, names in {{os: {of_os}, signal: {of_signal}}}.items():
    for name in names:
        delattr(module, name)
platform.system = lambda: {system!r}
"""
_OF_LINUX = ["sched_getaffinity", "sched_setaffinity", "pidfd_open", "memfd_create", "setns"]
_OF_LINUX = [name for name in _OF_LINUX if hasattr(__import__("os"), name)]
MACOS = _LACKS.format(modules=[], of_os=_OF_LINUX, of_signal=[], system="Darwin")
WINDOWS = _LACKS.format(
    modules=["fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"],
    of_os=[*_OF_LINUX, "fork", "getuid", "geteuid", "killpg", "setsid"],
    of_signal=["pthread_sigmask", "SIGHUP", "SIGKILL"],
    system="Windows",
)
_VERB = "from posttrain.__main__ import main; sys.argv[0] = 'posttrain'; main()"


def asked(lacks, code, *words, cwd=ROOT):
    """What a process says that lacks something, with its exit code."""
    return subprocess.run(
        [sys.executable, "-c", f"{lacks}\nsys.path.insert(0, {str(ROOT)!r})\n{code}", *words],
        cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    from posttrain.operations.project.create import create

    folder = tmp_path_factory.mktemp("platforms") / "demo"
    create(folder)
    return folder


@pytest.mark.slow  # an interpreter for each
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--help"], "Versioned pipelines"),
        (["plan"], "6 of 6 stages to run"),
        (["status"], "balance"),
        (["why", "sft"], "never ran"),
        (["audit"], "one set of outputs"),
        (["doctor"], "Nothing broken"),
        (["parts", "verifier"], "numeric"),
    ],
)
def test_what_only_looks_works_on_macos(words, said, project):
    done = asked(MACOS, _VERB, *words, cwd=project)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
    assert said in done.stdout + done.stderr


@pytest.mark.slow  # an interpreter for each
@pytest.mark.parametrize("words", [["run", "--local"], ["up"], ["worker"]])
def test_what_runs_is_refused_there_in_a_sentence(words, project):
    done = asked(MACOS, _VERB, *words, cwd=project)
    assert done.returncode == 2
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "on Linux only, and this is Darwin" in sentence
    assert "Traceback" not in done.stderr
    assert not (project / "data").exists()


def test_on_windows_the_package_is_imported_and_the_command_refused():
    assert asked(WINDOWS, "import posttrain; print(posttrain.__version__)").returncode == 0
    done = asked(WINDOWS, _VERB, "--help")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: posttrain runs on Linux, and looks at what was made on macOS too; on Windows, run"
        " it inside WSL 2"
    ]


@pytest.mark.slow  # an interpreter for each
@pytest.mark.parametrize(
    "code",
    [
        "from posttrain.provenance.dvc.store import DvcStore",
        "from posttrain.publishing.release.registered import registered",
        "from posttrain.pipeline.execution.session import open_session",
        "from posttrain.provenance.lineage import *",
    ],
)
def test_libraries_that_only_read_ask_for_no_lock_of_unix(code):
    unix = _LACKS.format(modules=["fcntl", "resource"], of_os=[], of_signal=[], system="Linux")
    done = asked(unix, code)
    assert done.returncode == 0, done.stderr
