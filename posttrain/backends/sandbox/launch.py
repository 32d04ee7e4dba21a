"""Start an empty sandbox: bubblewrap, with a keeper inside that waits for one program."""

import json
import os
import shutil
import site
import socket
import subprocess
import sys
from collections.abc import Collection
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

from posttrain.backends.sandbox import keeper
from posttrain.backends.sandbox.program import DISK_BYTES, Program, ProgramEnd
from posttrain.backends.sandbox.seccomp import system_call_filter
from posttrain.stage.errors import UserError

BUBBLEWRAP = "apt-get install bubblewrap"

_START_SECONDS = 30.0
_GRACE_SECONDS = 10.0
_MAPPED = 1_879_000_000
"""Who a program is on the machine where root runs it: nobody, so that it owns nothing there."""

# Root inside is root of the machine while the sandbox is built, which reads what only root may.
# The keeper then becomes another user, and these are gone.
_TO_BECOME = ("CAP_SETUID", "CAP_SETGID")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store")
_SETTINGS = ("/etc/ld.so.cache", "/etc/alternatives")
_INSIDE = "/.keeper.py"
_PACKAGES = ("site-packages", "dist-packages")
_OF_PREFIX = ("bin", "lib", "lib64", "pyvenv.cfg")
# None of these is hidden, though someone's project be `/usr`, or the home of `bin` `/bin`.
_ALWAYS = ("/usr/local/bin", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64")
_PROJECT = (".dvc", ".git")


class Sandbox:
    """One sandbox, which runs one program: started empty, so that a program need not wait."""

    def __init__(self) -> None:
        self._link, inside = socket.socketpair()
        self._ready = False
        with inside:
            self._process = _start(inside)

    def run(self, program: Program) -> ProgramEnd:
        """Run a program to its end; afterwards the sandbox is gone, with all that was in it.

        Args:
            program: What to run.

        Returns:
            How it ended.

        Raises:
            UserError: The sandbox could not be started here.

        """
        try:
            self.wait()
            header, blobs = program.told()
            self._link.settimeout(program.limits.seconds + _GRACE_SECONDS)
            keeper.send(self._link, header, blobs)
            told = keeper.receive(self._link)
        except OSError:
            told = None
        finally:
            self.close()
        if told is None:
            return ProgramEnd("lost", None, b"", b"", 0.0)
        found, (stdout, stderr) = told
        return ProgramEnd(**found, stdout=stdout, stderr=stderr)

    def wait(self) -> None:
        """Wait until the keeper inside is there.

        Raises:
            UserError: The sandbox could not be started here.

        """
        if self._ready:
            return
        self._link.settimeout(_START_SECONDS)
        try:
            self._ready = self._link.recv(1) == b"+"
        except TimeoutError:
            self._process.kill()
            raise UserError(
                f"a sandbox did not start within {_START_SECONDS:g} s; the machine is busy, or"
                " short of memory: end what else runs on it, and run this again"
            ) from None
        except OSError:
            self._ready = False
        if not self._ready:
            self._process.kill()
            assert self._process.stderr is not None
            said = self._process.stderr.read().decode("utf-8", "replace").strip()
            raise not_permitted(said or "it said nothing")

    @property
    def is_alive(self) -> bool:
        """True until it has run its program, or was killed."""
        return self._process.poll() is None

    def close(self) -> None:
        """End it, whatever it is at."""
        self._link.close()
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()


def not_permitted(said: str) -> UserError:
    """Return what to tell a person of a machine that lets no sandbox start.

    Args:
        said: bubblewrap's own words.

    """
    line = " ".join(said.split())[-300:]
    return UserError(
        f"bubblewrap cannot make a sandbox here ({line}); allow user namespaces: sysctl -w"
        " user.max_user_namespaces=10000, on Debian also kernel.unprivileged_userns_clone=1, on"
        " Ubuntu kernel.apparmor_restrict_unprivileged_userns=0, in a container --security-opt"
        " seccomp=unconfined"
    )


@cache
def bubblewrap() -> str:
    """Find the program.

    Raises:
        UserError: It is not installed.

    """
    found = shutil.which("bwrap")
    if found is None:
        raise UserError(
            "what a model wrote runs only in a sandbox, and bubblewrap is not installed; run:"
            f" {BUBBLEWRAP}"
        )
    return found


def _start(inside: socket.socket) -> subprocess.Popen[bytes]:
    """Start bubblewrap with the keeper, which says over `inside` that it is there."""
    program, command = bubblewrap(), _command()
    with ExitStack() as kept:
        rules, rules_in = map(kept.enter_context, socket.socketpair())
        told, told_in = map(kept.enter_context, socket.socketpair())
        go, go_in = map(kept.enter_context, socket.socketpair())
        rules.sendall(system_call_filter())
        rules.close()
        users: tuple[str, ...] = ("--uid", str(keeper.USER), "--gid", str(keeper.USER))
        if nobody() is not None:
            users = ("--userns-block-fd", str(go_in.fileno()), "--info-fd", str(told_in.fileno()))
            users += tuple(word for name in _TO_BECOME for word in ("--cap-add", name))
        process = subprocess.Popen(
            [
                *(program, "--unshare-user", *command, *users),
                *("--seccomp", str(rules_in.fileno()), "--"),
                *(os.path.realpath(sys.executable), "-I", "-S", _INSIDE),
                *(str(inside.fileno()), search_path()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[each.fileno() for each in (inside, rules_in, told_in, go_in)],
            env={},
        )
        told_in.close()
        if nobody() is not None:
            with suppress(OSError, ValueError, KeyError):  # then it ends, and says why
                _map_users(told)
                go.sendall(b"+")
    return process


def _map_users(told: socket.socket) -> None:
    """Give the namespace of a sandbox that root starts its two users."""
    text = b""
    while not text.rstrip().endswith(b"}"):
        part = told.recv(4096)
        if not part:
            return
        text += part
    folder = Path("/proc", str(json.loads(text)["child-pid"]))
    for name in ("uid_map", "gid_map"):
        (folder / name).write_text(f"0 0 1\n{keeper.USER} {nobody()} 1\n")


@cache
def nobody() -> int | None:
    """Find the user of this machine that a program is where root runs it; None for others.

    Of root itself the kernel counts no processes, and root owns the settings in `/proc`.
    """
    if os.geteuid() != 0:
        return None
    ranges = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    held = [(int(first), int(first) + int(count)) for first, _, count in ranges]
    if any(first <= _MAPPED < end for first, end in held):
        return _MAPPED
    last = max(end for _, end in held) - 1
    return last or None


def search_path() -> str:
    """Return where programs are looked for in a sandbox."""
    return f"{os.path.dirname(sys.executable)}:/usr/local/bin:/usr/bin:/bin"  # noqa: PTH120


@cache
def _command() -> tuple[str, ...]:
    """What is the same for every sandbox of this process."""
    words = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]
    words += ["--unshare-cgroup-try", "--hostname", "sandbox", "--clearenv", "--cap-drop", "ALL"]
    words += ["--die-with-parent", "--new-session", "--as-pid-1"]
    words += ["--perms", "1777", "--size", str(DISK_BYTES), "--tmpfs", "/tmp"]  # noqa: S108
    for place in _SYSTEM:
        if os.path.islink(place):  # noqa: PTH114
            words += ["--symlink", os.readlink(place), place]  # noqa: PTH115
        elif os.path.isdir(place):  # noqa: PTH112
            words += ["--ro-bind", place, place]
    words += ["--perms", "0755", "--dir", "/etc"]
    for place in _SETTINGS:
        words += ["--ro-bind-try", place, place]
    made: set[str] = set()
    hidden = []
    for place, seen in _mounts(_interpreter(), _private()):
        if not seen:
            words += ["--perms", "0755", "--tmpfs", place]
            hidden += ["--remount-ro", place]
            continue
        for parent in reversed([str(each) for each in Path(place).parents][:-1]):
            if parent not in made:
                words += ["--perms", "0755", "--dir", parent]
                made.add(parent)
        words += ["--ro-bind", place, place]
    words += ["--proc", "/proc", "--dev", "/dev"]
    words += ["--perms", "1777", "--size", str(DISK_BYTES), "--tmpfs", "/dev/shm"]  # noqa: S108
    words += ["--ro-bind", os.path.realpath(keeper.__file__), _INSIDE]
    words += hidden
    return (*words, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/")


def _mounts(seen: Collection[str], hidden: Collection[str]) -> list[tuple[str, bool]]:
    """Order what is shown and what is hidden, the outer first; what its outer one says is left out.

    Args:
        seen: Folders of the interpreter.
        hidden: Folders of which nothing else is to be seen.

    Returns:
        Each with whether it is seen.

    """
    places: list[tuple[str, bool]] = []
    for place in seen:
        # What is hidden may lie in it, or be it: a project whose folder is its environment.
        if any(_within(private, os.path.realpath(place)) for private in hidden):
            parts = [f"{place}/{name}" for name in _OF_PREFIX]
            places += [(part, True) for part in parts if os.path.exists(part)]  # noqa: PTH110
        else:
            places.append((place, True))
    places += [(place, False) for place in hidden]
    said = dict.fromkeys(_SYSTEM, True)
    found = []
    for place, shown in sorted(places, key=lambda each: (each[0].count("/"), each)):
        around = [outer for outer in said if _within(place, outer)]
        if (said[max(around, key=len)] if around else False) != shown:
            said[place] = shown
            found.append((place, shown))
    return found


def _private() -> list[str]:
    """Folders of the user and of the project from which this process was started."""
    here = Path.cwd()
    above = (here, *here.parents)
    roots = (next((each for each in above if (each / mark).exists()), None) for mark in _PROJECT)
    found = {str(each) for each in (next(filter(None, roots), here), Path.home())}
    found = {os.path.realpath(place) for place in found}
    return sorted(place for place in found if not any(_within(needed, place) for needed in _ALWAYS))


def _within(place: str, outer: str) -> bool:
    """Return whether a folder is another one, or lies in it."""
    return f"{place}/".startswith(f"{outer.rstrip('/')}/")


def _interpreter() -> list[str]:
    """Folders of this interpreter and of its packages."""
    found: list[str] = [sys.prefix, sys.base_prefix, sys.exec_prefix]
    found += [place for place in sys.path if os.path.basename(place) in _PACKAGES]  # noqa: PTH119
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    found += [os.path.realpath(place) for place in found]
    return sorted({place for place in found if os.path.isdir(place)})  # noqa: PTH112
