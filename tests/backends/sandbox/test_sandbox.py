"""One program in one sandbox: what it is given, what comes back, how it ended."""

import os
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest
from click.testing import CliRunner

from posttrain.backends.sandbox import launch
from posttrain.backends.sandbox.launch import Sandbox
from posttrain.backends.sandbox.program import MIB, Program, ProgramLimits
from posttrain.cli.main import cli
from posttrain.stage.errors import UserError


def run(source, language="python", **limits):
    """Run some text in a sandbox of its own."""
    stdin = limits.pop("stdin", "")
    asked = ProgramLimits(**{"seconds": 8.0, **limits})
    return Sandbox().run(Program.of(language, source, stdin=stdin, limits=asked))


FORKING = """
import os, time
for _ in range(6):
    try: os.fork()
    except OSError: pass
time.sleep(60)
"""
pytestmark = pytest.mark.usefixtures("sandboxed")


def test_a_program_reads_writes_and_ends():
    source = "import sys\nprint(input()[::-1])\nprint('oh', file=sys.stderr)\nsys.exit(7)"
    end = run(source, stdin="abc\n")
    assert (end.how, end.code, end.output, end.errors, end.ok) == (
        "exit",
        7,
        "cba\n",
        "oh\n",
        False,
    )
    assert 0 < end.cpu_seconds < end.seconds + 1
    assert end.processes == 1


def test_bytes_come_through_as_they_are():
    end = run(
        "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())", stdin=bytes(range(256))
    )
    assert end.stdout == bytes(range(256))
    assert run("print('\ud800' == '\\ud800')").how == "exit"


def test_a_signal_is_told_from_an_exit_code_of_the_same_number():
    assert (killed := run("import os; os.kill(os.getpid(), 9)")).how == "signal"
    assert killed.code == signal.SIGKILL
    assert (run("import sys; sys.exit(137)").how, run("exit 137", "shell").code) == ("exit", 137)


def test_what_is_asked_for_is_what_is_run():
    assert run("echo $((6 * 7)) $(id -u)", "shell").output == "42 1000\n"
    rows = "create table t (a, b); insert into t values (1, 'x;y'), (null, 2); select * from t"
    assert run(rows, "sql").output == "1|x;y\n|2\n"
    with pytest.raises(UserError, match="runs python, shell, sql, verilog, and not 'cobol'"):
        Program.of("cobol", "")


def test_a_command_that_is_not_there_says_so():
    end = Sandbox().run(Program(("no-such-program",)))
    assert (end.how, end.code) == ("exit", 127)
    assert end.errors == "no-such-program cannot be started: No such file or directory\n"


@pytest.mark.parametrize(
    ("how", "source", "limits"),
    [
        ("time", "import time; time.sleep(60)", {"seconds": 0.3}),
        ("cpu", "while True: pass", {"cpu_seconds": 0.3}),
        ("output", "while True: print('x' * 999)", {}),
        ("processes", FORKING, {"processes": 8}),
        ("files", "for i in range(10**5): open(str(i), 'w').close()", {"files": 50}),
        (
            "memory",
            "import os, time\nfor _ in range(4): os.fork()\nx = b'x' * (30 << 20)\ntime.sleep(60)",
            {"memory_bytes": 200 * MIB},
        ),
    ],
)
def test_each_limit_stops_a_program_and_is_named(how, source, limits):
    end = run(source, **limits)
    assert (end.how, end.code) == (how, None)
    assert "was stopped" in end.sentence(ProgramLimits(**limits))
    assert len(end.stdout) <= MIB


def test_what_it_wrote_before_it_was_stopped_is_there():
    end = run("import time; print('first', flush=True); time.sleep(60)", seconds=0.5)
    assert (end.how, end.output) == ("time", "first\n")


def test_what_it_leaves_running_does_not_keep_it():
    begun = time.monotonic()
    end = run("import os, time\nif os.fork() == 0: time.sleep(60)\nprint('done')")
    assert (end.how, end.output, time.monotonic() - begun < 5) == ("exit", "done\n", True)


def test_the_environment_is_a_literal_few(monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    end = run("import os; print(*sorted(os.environ))")
    known = "HOME LANG OMP_NUM_THREADS OPENBLAS_NUM_THREADS PATH PYTHONDONTWRITEBYTECODE"
    assert end.output.split() == [*known.split(), "PYTHONHASHSEED", "TMPDIR", "TZ", "USER"]


def test_whoever_runs_it_the_program_is_nobody_here():
    end = run("print(open('/proc/self/uid_map').read())")
    mapped = dict(line.split()[:2] for line in end.output.splitlines() if line)
    if os.geteuid() == 0:
        assert int(mapped["1000"]) == launch.nobody() > 65535
    else:
        # bubblewrap maps twice for an ordinary user: to root of a namespace between, then to this.
        assert mapped.keys() == {"1000"}


LOOKING = """
import os, sys
from posttrain.backends.sandbox.launch import Sandbox
from posttrain.backends.sandbox.program import Program
look = "import os, sys; print(os.path.exists(sys.argv[1]), os.path.isdir(sys.argv[2]))"
paths = (os.path.abspath("secret"), os.path.abspath("lib"))
end = Sandbox().run(Program((sys.executable, "-c", look, *paths)))
print(end.output.strip() or end)
"""


def test_a_project_that_is_its_own_environment_is_not_seen(tmp_path):
    venv.create(tmp_path)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "secret").write_text("")
    around = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [tmp_path / "bin" / "python", "-c", LOOKING],
        cwd=tmp_path,
        env=around,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("False True\n", "")


def test_a_home_below_a_folder_of_the_system_is_empty(monkeypatch):
    home = next(
        each for each in Path("/usr/share").iterdir() if each.is_dir() and any(each.iterdir())
    )
    monkeypatch.setenv("HOME", str(home))
    launch._command.cache_clear()
    try:
        assert run(f"import os; print(os.listdir({str(home)!r}))").output == "[]\n"
        assert "Read-only" in run(f"open('{home}/x', 'w')").errors
    finally:
        launch._command.cache_clear()


def test_an_environment_in_a_hidden_folder_is_seen_and_nothing_beside_it(monkeypatch, tmp_path):
    (tmp_path / "app" / ".venv" / "lib").mkdir(parents=True)
    (tmp_path / "app" / "secret").write_text("")
    for each in (tmp_path, *tmp_path.rglob("*")):
        each.chmod(0o755)
    places = [(tmp_path, True), (tmp_path / "app", False), (tmp_path / "app" / ".venv", True)]
    told = [(str(place), seen) for place, seen in places]
    mounts = [*launch._mounts(launch._interpreter(), []), *told]
    monkeypatch.setattr(launch, "_mounts", lambda *_: mounts)
    launch._command.cache_clear()
    try:
        end = run(f"cd {tmp_path}/app; find .; touch x", "shell")
    finally:
        launch._command.cache_clear()
    assert end.output.split() == [".", "./.venv", "./.venv/lib"]
    assert "Read-only" in end.errors


def command(*words):
    """Call the verb."""
    return CliRunner().invoke(cli, ["sandbox", "run", *map(str, words)])


def test_the_verb_prints_the_output_and_then_how_it_ended(tmp_path):
    (tmp_path / "a.py").write_text("print(input().upper())")
    (tmp_path / "in").write_text("shout\n")
    done = command(tmp_path / "a.py", "--stdin", tmp_path / "in")
    assert (done.exit_code, done.stdout) == (0, "SHOUT\n")
    assert done.stderr.startswith("a.py ended with exit code 0 (")
    (tmp_path / "b.sh").write_text("exit 4")
    done = command(tmp_path / "b.sh")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "ended with exit code 4" in done.stderr
    (tmp_path / "c.py").write_text("while True: pass")
    done = command(tmp_path / "c.py", "--seconds", 0.2)
    assert done.exit_code == 1
    assert "was stopped after 0.2 s" in done.stderr
