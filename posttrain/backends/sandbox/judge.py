"""Judge a program by tests that it cannot read, in processes apart: this file runs in a sandbox.

The tests run here. The program runs in another process, started anew and given nothing but its own
source and the arguments of calls, so that it has no reach to what is expected, to the names that
the tests use, or to where the verdict is written: it may patch, exit and print as it likes. What it
returns crosses as plain data, whose comparisons are Python's own. This process is not dumpable:
nobody in the sandbox may trace it or read its memory and files.
"""

import ast
import builtins
import contextlib
import ctypes
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_MODULE = "solution"
_MOST_BYTES = 8 << 20
_PR_SET_DUMPABLE = 4


class Link:
    """Messages of JSON, one a line, between the judge and the program."""

    def __init__(self, ends: socket.socket) -> None:
        self._file = ends.makefile("rwb")
        self.kept: list[Any] = []
        """What the other side knows by its number: objects here, functions of tests there."""

    def send(self, **message: Any) -> None:
        """Send one message."""
        self._file.write(json.dumps(message).encode() + b"\n")
        self._file.flush()

    def receive(self) -> dict[str, Any]:
        """Receive one message.

        Raises:
            EOFError: The other side is gone, or sends no end.

        """
        line = self._file.readline(_MOST_BYTES)
        if not line.endswith(b"\n"):
            raise EOFError
        message: dict[str, Any] = json.loads(line)
        return message

    def told(self, value: Any) -> Any:
        """Return a value as JSON can hold it: plain data whole, all else by a number."""
        if value is None or isinstance(value, bool | str):
            return ["s", str(value)] if isinstance(value, str) else value
        if isinstance(value, int):
            return ["i", format(int(value), "x")]
        if isinstance(value, float | complex):
            return ["f" if isinstance(value, float) else "c", repr(type(value).__mro__[-2](value))]
        if isinstance(value, bytes | bytearray):
            return ["b", value.hex()]
        for kind, name in ((list, "l"), (tuple, "t"), (set, "e"), (frozenset, "z")):
            if isinstance(value, kind):
                return [name, [self.told(each) for each in value]]
        if isinstance(value, dict):
            return ["d", [[self.told(key), self.told(each)] for key, each in value.items()]]
        if isinstance(value, Remote):
            return ["r", value._number]  # noqa: SLF001
        if callable(getattr(value, "tolist", None)):
            return self.told(value.tolist())
        self.kept.append(value)
        return ["o", len(self.kept) - 1]

    def read(self, told: Any, remote: Callable[[int], Any]) -> Any:
        """Return the value that was told: plain types alone, and what `remote` makes of others."""
        if not isinstance(told, list):
            return told if told is None or isinstance(told, bool) else bool(told)
        name, held = told
        plain: dict[str, Callable[[Any], Any]] = {
            "s": str,
            "i": lambda text: int(text, 16),
            "f": float,
            "c": complex,
            "b": bytes.fromhex,
            "o": remote,
            "r": lambda number: self.kept[number],
        }
        if name in plain:
            return plain[name](held)
        if name == "d":
            return {self.read(key, remote): self.read(each, remote) for key, each in held}
        kinds: dict[str, Callable[[Iterator[Any]], Any]]
        kinds = {"l": list, "t": tuple, "e": set, "z": frozenset}
        return kinds[name](self.read(each, remote) for each in held)


class Remote:
    """Something of the program that is no plain data: a function, a class, an object."""

    def __init__(self, ask: Callable[..., Any], number: int) -> None:
        self._ask, self._number = ask, number

    def __call__(self, *values: Any, **named: Any) -> Any:  # noqa: D102 - as it is in the program
        return self._ask("call", self._number, values, named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._ask("get", self._number, (name,), {})

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_ask", "_number"):
            object.__setattr__(self, name, value)
        else:
            self._ask("set", self._number, (name, value), {})

    def __iter__(self) -> Iterator[Any]:
        return iter(self._ask("list", self._number, (), {}))

    def __len__(self) -> int:
        return int(self._ask("len", self._number, (), {}))

    def __getitem__(self, key: Any) -> Any:
        return self._ask("item", self._number, (key,), {})

    def __eq__(self, other: object) -> bool:
        """Two objects of the program are equal if it says so; plain data is equal to none."""
        return isinstance(other, Remote) and bool(self._ask("same", self._number, (other,), {}))

    def __hash__(self) -> int:
        return hash(self._number)


class TestedProgram:
    """The program, in a process of its own."""

    def __init__(self, source: str) -> None:
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self._link = Link(ours)
        self._ours = ours
        self._link.send(source=source)
        self.error = ""
        """Why it cannot be loaded; empty where it was."""

    def load(self) -> None:
        """Wait until it has run its source."""
        self.error = str(self._link.receive().get("error", ""))

    def end(self) -> None:
        """End it, and what it has begun in its session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._ours.close()

    def named(self, name: str) -> Any:
        """Return what the program calls so.

        Raises:
            NameError: It has nothing of that name.

        """
        return self._ask("name", 0, (name,), {})

    def _ask(self, what: str, number: int, values: Sequence[Any], named: dict[str, Any]) -> Any:
        link = self._link
        told = [link.told(each) for each in values]
        link.send(
            ask=what,
            number=number,
            values=told,
            named={name: link.told(each) for name, each in named.items()},
        )
        while "call" in (said := link.receive()):
            # A function of the test that was handed over: it sees plain data.
            try:
                arguments = [self._read(each) for each in said["values"]]
                link.send(value=link.told(link.kept[said["call"]](*arguments)))
            except Exception as error:  # noqa: BLE001 - the program sees it, as it would
                link.send(error=[type(error).__name__, str(error)])
        for value, after in zip(values, said.get("after", ()), strict=False):
            _follow(value, self._read(after))
        if "error" in said:
            name, text = said["error"]
            raise _exception(name)(text)
        return self._read(said["value"])

    def _read(self, told: Any) -> Any:
        return self._link.read(told, lambda number: Remote(self._ask, int(number)))


def _follow(value: Any, after: Any) -> None:
    """Change an argument in place as the program has changed its copy."""
    if isinstance(value, list) and isinstance(after, list):
        value[:] = after
    elif isinstance(value, dict | set) and type(value) is type(after):
        value.clear()
        value.update(after)


def _exception(name: str) -> type[Exception]:
    found = getattr(builtins, str(name), None)
    known = isinstance(found, type) and issubclass(found, Exception)
    return found if known else type(str(name), (Exception,), {})  # type: ignore[return-value]


def judge_tests(
    source: str, setup: str, tests: Sequence[str], seconds: float, names: Sequence[str] = ()
) -> list[str]:
    """Run every test; those that the program's death or a limit ends begin with a new process.

    Of `names` the tests mean the program's, though Python has them too.

    Returns:
        For each `passed`, `failed`, `timeout`, or `error: ...` where the program cannot be loaded,
        or `setup: ...` where no program can pass the tests.

    """
    broken = _broken(setup, tests, seconds)
    if broken:
        return [f"setup: {broken}"] * len(tests)
    verdicts: list[str] = []
    candidate: TestedProgram | None = None
    for test in tests:
        verdict = ""
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            if candidate is None:
                candidate = TestedProgram(source)
                candidate.load()
            if candidate.error:
                verdict = f"error: {candidate.error}"
            else:
                _run(test, setup, candidate, names)
                verdict = "passed"
        except TimeoutError:
            verdict = "timeout"
        except BaseException as error:  # noqa: BLE001 - whatever a test raises, it did not pass
            verdict = "failed"
            if isinstance(error, Exception) and not isinstance(error, EOFError | OSError):
                verdicts.append(verdict)
                continue
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        verdicts.append(verdict)
        if verdict != "passed" and candidate is not None and not candidate.error:
            candidate.end()
            candidate = None
    if candidate is not None:
        candidate.end()
    return verdicts


def _broken(setup: str, tests: Sequence[str], seconds: float) -> str:
    """Say why no program can pass the tests: they do not parse, or import what is not there."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        exec(compile(setup, "setup", "exec"), {"__name__": "tests"})  # noqa: S102
        for number, test in enumerate(tests, start=1):
            compile(test, f"test {number}", "exec")
            for name in _imported(ast.parse(test)):
                if name not in sys.modules and importlib.util.find_spec(name) is None:
                    return f"test {number} imports {name}, which is not installed"
    except TimeoutError:
        pass  # a machine that is busy is no fault of the tests
    except BaseException as error:  # noqa: BLE001 - so is a setup that exits
        return f"{type(error).__name__}: {error}"[:500]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return ""


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield the packages that a test imports in any case."""
    for each in tree.body:
        if isinstance(each, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in each.names)
        elif isinstance(each, ast.ImportFrom) and not each.level:
            yield str(each.module).partition(".")[0]


def _run(test: str, setup: str, candidate: TestedProgram, names: Sequence[str]) -> None:
    """Run a test among Python's own names, the modules that it names, and the program's."""
    space: dict[str, Any] = {"__name__": "tests"}
    exec(compile(setup, "setup", "exec"), space)  # noqa: S102 - this is a sandbox
    tree = ast.parse(test)
    nodes = list(ast.walk(tree))
    owners = {each.value.id for each in nodes if _is_owner(each)}  # type: ignore[attr-defined]
    for name in sorted({node.id for node in nodes if isinstance(node, ast.Name)}):
        if name in space or (hasattr(builtins, name) and name not in names):
            continue
        if hasattr(builtins, name):
            space[name] = candidate.named(name)
            continue
        # `math.isclose` is Python's own, whatever the program calls so.
        if name in owners and name in sys.stdlib_module_names:
            space[name] = importlib.import_module(name)
            continue
        with contextlib.suppress(NameError):  # then the test itself defines it
            space[name] = candidate.named(name)
    exec(compile(tree, "test", "exec"), space)  # noqa: S102


def _is_owner(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)


def be_program(ends: socket.socket) -> None:
    """Be the program: run its source, and answer calls."""
    link = Link(ends)
    source = link.receive()["source"]
    space: dict[str, Any] = {"__name__": _MODULE}
    try:
        exec(compile(source, f"{_MODULE}.py", "exec"), space)  # noqa: S102
        link.send(loaded=True)
    except BaseException as error:  # noqa: BLE001 - the judge is told of it
        link.send(error=f"{type(error).__name__}: {error}"[:500])
    while True:
        asked = link.receive()
        values = [_received(link, each) for each in asked["values"]]
        named = {name: _received(link, each) for name, each in asked["named"].items()}
        answer: dict[str, Any]
        try:
            answer = {"value": link.told(_answer(link, space, asked, values, named))}
        except BaseException as error:  # noqa: BLE001 - so is a program's exit
            answer = {"error": [type(error).__name__, str(error)]}
        link.send(**answer, after=[link.told(each) for each in values])


def _received(link: Link, told: Any) -> Any:
    return link.read(told, lambda number: _callback(link, number))


def _callback(link: Link, number: int) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        link.send(call=number, values=[link.told(each) for each in values])
        said = link.receive()
        if "error" in said:
            raise _exception(said["error"][0])(said["error"][1])
        return _received(link, said["value"])

    return call


def _answer(
    link: Link, space: dict[str, Any], asked: dict[str, Any], values: list[Any], named: Any
) -> Any:
    if asked["ask"] == "name":
        if values[0] not in space:
            raise NameError(values[0])
        return space[values[0]]
    held = link.kept[asked["number"]]
    ways: dict[str, Callable[[], Any]] = {
        "call": lambda: held(*values, **named),
        "get": lambda: getattr(held, values[0]),
        "set": lambda: setattr(held, values[0], values[1]),
        "list": lambda: list(held),
        "len": lambda: len(held),
        "item": lambda: held[values[0]],
        "same": lambda: bool(held == values[0]),
    }
    return ways[asked["ask"]]()


def main() -> None:
    """Judge what the standard input tells, and write the verdicts to the standard output."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)
    # Nothing is imported from where the program can write.
    sys.path[:] = [place for place in sys.path if not place.startswith("/tmp")]  # noqa: S108

    def late(_number: int, _frame: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    told = json.load(sys.stdin)
    out = os.dup(1)
    os.dup2(2, 1)  # what tests print is no verdict
    verdicts = judge_tests(**told)
    os.write(out, json.dumps(verdicts).encode())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        be_program(socket.socket(fileno=int(sys.argv[1])))
    else:
        main()
