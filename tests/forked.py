"""`posttrain ...` in a process of its own, forked from one that has imported what commands import.

An interpreter and its imports take most of what a short command costs. A fork has an environment, a
folder, standard files, signals and an end of its own, as a started process has, and pays for its
work alone. What a test asks about the start itself belongs into a started one.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_SERVER = """
import gc, importlib, json, os, sys
asked, told = (os.fdopen(int(number), mode) for number, mode in zip(sys.argv[1:3], "rw"))
sys.path.remove("")
for name in ("posttrain.pipeline.execution.session", "posttrain.pipeline.execution.executor",
             "posttrain.cli.run", "posttrain.cli.plan", "posttrain.cli.status", "posttrain.cli.why",
             "posttrain.cli.summary", "posttrain.views.report", "polars", "dvc.repo"):
    importlib.import_module(name)
gc.freeze()
for line in asked:
    request = json.loads(line)
    child = os.fork()
    if not child:
        break
    told.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\\n")
    told.flush()
else:
    sys.exit()
asked.close(), told.close()
os.chdir(request["cwd"])
os.environ.clear()
os.environ.update(request["environment"])
sys.path.insert(0, os.getcwd())
sys.argv = ["posttrain", *request["arguments"]]
for number, file in enumerate([os.devnull, *request["files"]]):
    os.dup2(os.open(file, os.O_RDWR), number)
from posttrain.__main__ import main
main()
"""


class _Server:
    """The process that forks; it ends with this one, whose end closes its pipe."""

    def __init__(self) -> None:
        theirs, ours = os.pipe(), os.pipe()
        numbers = (theirs[0], ours[1])
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, *map(str, numbers)],
            pass_fds=numbers,
            stdin=subprocess.DEVNULL,
        )
        for number in numbers:
            os.close(number)
        self._ask, self._hear = os.fdopen(theirs[1], "w"), os.fdopen(ours[0])

    def run(self, request: Mapping[str, object]) -> int:
        """Exit code of one command; minus the number of the signal that ended it."""
        self._ask.write(f"{json.dumps(request)}\n")
        self._ask.flush()
        return int(self._hear.readline())


_server = cache(_Server)


def posttrain(
    *arguments: str | Path, cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command as `subprocess.run` would.

    Args:
        arguments: The words behind `posttrain`.
        cwd: Where it runs.
        environment: Variables beside those of this process, or in their place.

    Returns:
        How it ended, and what it wrote.

    """
    words = [str(word) for word in arguments]
    given = {**os.environ, **(environment or {})}
    if any(name.startswith("PYTHON") for name in environment or ()):
        # What an interpreter reads when it starts.
        return subprocess.run([sys.executable, "-m", "posttrain", *words], cwd=cwd, env=given,
                              capture_output=True, text=True, check=False)  # fmt: skip
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        code = _server().run({
            "arguments": words, "cwd": str(cwd), "files": [out.name, err.name],
            "environment": given,
        })  # fmt: skip
        texts = [Path(file.name).read_text() for file in (out, err)]
    return subprocess.CompletedProcess(["posttrain", *words], code, *texts)
