"""What is refused before anything runs: here bubblewrap is not needed, and may be missing."""

import errno
import socket
import sqlite3
import struct
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from posttrain.backends.sandbox import broker, keeper, launch, seccomp
from posttrain.backends.sandbox.launch import Sandbox
from posttrain.backends.sandbox.program import MIB, Program, ProgramLimits
from posttrain.cli.main import cli
from posttrain.stage.errors import UserError


def test_where_bubblewrap_is_not_there_nothing_runs_and_the_install_line_is_said(
    monkeypatch, tmp_path
):
    launch.bubblewrap.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    try:
        with pytest.raises(UserError, match="not installed; run: apt-get install bubblewrap"):
            Sandbox()
    finally:
        launch.bubblewrap.cache_clear()


def test_where_it_is_not_permitted_nothing_runs_and_the_settings_are_said(monkeypatch, tmp_path):
    refusing = tmp_path / "bwrap"
    refusing.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1"
    )
    refusing.chmod(0o755)
    monkeypatch.setattr(launch, "bubblewrap", lambda: str(refusing))
    with pytest.raises(UserError, match="No permissions to create.*user.max_user_namespaces"):
        Sandbox().run(Program.of("shell", "true"))


def test_a_slow_start_is_told_from_one_that_is_not_permitted(monkeypatch, tmp_path):
    slow = tmp_path / "bwrap"
    slow.write_text("#!/bin/sh\nexec sleep 20")
    slow.chmod(0o755)
    monkeypatch.setattr(launch, "bubblewrap", lambda: str(slow))
    monkeypatch.setattr(launch, "_START_SECONDS", 0.1)
    monkeypatch.setattr(launch, "nobody", lambda: None)
    box = Sandbox()
    with pytest.raises(UserError, match="did not start within 0.1 s; the machine is busy"):
        box.wait()
    box.close()


def test_what_the_broker_cannot_do_is_answered_with_the_reason(monkeypatch):
    def full(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(broker, "_answer", full)
    ours, theirs = socket.socketpair()
    with ours:
        keeper.send(ours, {"versions": True}, [])
        broker._serve(theirs, None)
        assert keeper.receive(ours) == ({"refused": "[Errno 24] Too many open files"}, [])


def test_versions_name_sqlite_and_change_with_each_package_that_a_program_can_import(monkeypatch):
    def versions(**packages):
        found = [SimpleNamespace(name=name, version=each) for name, each in packages.items()]
        monkeypatch.setattr(broker, "distributions", lambda: found)
        return broker._versions.__wrapped__().split(", ")

    told = versions(numpy="1.0", sympy="1.0")
    assert f"SQLite {sqlite3.sqlite_version}" in told
    assert any(each.startswith("2 packages (") for each in told)
    assert versions(sympy="1.0", numpy="1.0") == told
    assert versions(numpy="1.1", sympy="1.0") != told


@pytest.mark.parametrize(
    ("seen", "hidden", "expected"),
    [
        # Beside each other, and a home above the interpreter: as nothing were hidden.
        (["/opt/py", "/home/me/v"], ["/home/me", "/work"], [("/opt/py", 1), ("/home/me/v", 1)]),
        (["/usr", "/usr/local/lib/x"], ["/usr/src/app"], [("/usr/src/app", 0)]),
        (
            ["/usr/src/app/.venv"],
            ["/usr/src/app", "/usr/src/app/home"],
            [("/usr/src/app", 0), ("/usr/src/app/.venv", 1)],
        ),
        (["/opt/py", "/opt/py/lib/site-packages"], [], [("/opt/py", 1)]),
    ],
)
def test_what_lies_below_a_shown_folder_is_hidden_in_order(seen, hidden, expected):
    assert launch._mounts(seen, hidden) == [(place, bool(said)) for place, said in expected]


def test_folders_that_every_program_needs_are_never_hidden(monkeypatch):
    monkeypatch.setenv("HOME", "/usr")
    monkeypatch.chdir("/")
    assert launch._private() == []


def test_limits_that_make_no_sense_are_refused():
    with pytest.raises(UserError, match="seconds of a sandboxed program must be above 0"):
        ProgramLimits(seconds=0)
    with pytest.raises(UserError, match="memory of a sandboxed program must be 16 to"):
        ProgramLimits(memory_bytes=MIB)
    with pytest.raises(UserError, match="must be positive"):
        ProgramLimits(processes=0)


def _verdict(program, machine, number, *arguments):
    """What a filter says of a call, by an interpreter of the few instructions that it has."""
    architecture = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    held = place = 0
    while True:
        code, yes, no, value = struct.unpack_from("=HBBI", program, place * 8)
        place += 1
        if code == 0x20:
            held = struct.unpack_from("=I", data, value)[0]
        elif code == 0x06:
            return "allowed" if value == 0x7FFF0000 else "killed" if value >> 31 else value & 0xFFFF
        else:
            passed = {0x15: held == value, 0x25: held > value, 0x45: bool(held & value)}[code]
            place += yes if passed else no


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_the_filter_refuses_what_it_says_on_both_processors(machine, column):
    program = seccomp.system_call_filter(machine)
    said = {
        name: _verdict(program, machine, each[column]) for name, each in seccomp.REFUSED.items()
    }
    assert set(said.values()) == {1}
    of_itself = [each[column] for each in seccomp.OF_ITSELF.values()]
    assert {_verdict(program, machine, each, 0) for each in of_itself} == {"allowed"}
    assert {_verdict(program, machine, each, 1) for each in of_itself} == {1}
    clone, socket, ioctl = ((56, 220), (41, 198), (16, 29))
    assert _verdict(program, machine, clone[column], 0x10000000 | 17) == 1
    assert _verdict(program, machine, clone[column], 0x3D0F00) == "allowed"  # a thread of glibc
    families = {family: _verdict(program, machine, socket[column], family) for family in (1, 2, 10)}
    assert set(families.values()) == {"allowed"}
    assert {_verdict(program, machine, socket[column], each) for each in (16, 17, 38, 40)} == {97}
    assert _verdict(program, machine, ioctl[column], 0, 0x5412) == 1
    assert _verdict(program, machine, ioctl[column], 0, 0x5413) == "allowed"
    assert _verdict(program, machine, 435) == _verdict(program, machine, 0x40000000) == 38
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[machine]
    assert _verdict(seccomp.system_call_filter(other), machine, 1) == "killed"


def test_a_processor_whose_calls_are_not_known_is_refused():
    with pytest.raises(UserError, match="no system calls of the processor riscv64"):
        seccomp.system_call_filter("riscv64")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.py"], "cannot read {}/none.py: No such file"),
        (["a.txt"], "a.txt: the sandbox runs files that end in .py, .sh, .sql, .v, .sv"),
        (["a.py", "--seconds", "0"], "--seconds must be above 0, at most 3600, not 0"),
        (["a.py", "--seconds", "nan"], "--seconds must be above 0, at most 3600, not nan"),
        (["a.py", "--memory", "-3"], "--memory must be 16 to 1048576 MiB, not -3"),
        (["a.py", "--stdin", "none"], "cannot read none: No such file"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, words, said):
    for name in ("a.py", "a.txt"):
        (tmp_path / name).write_text("")
    done = CliRunner().invoke(cli, ["sandbox", "run", str(tmp_path / words[0]), *words[1:]])
    assert isinstance(done.exception, UserError)
    assert said.format(tmp_path) in str(done.exception)
