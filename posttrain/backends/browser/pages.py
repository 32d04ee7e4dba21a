"""Pages that are kept open and asked to compute: one browser for a process, by pipes, without TCP.

The browser speaks the DevTools protocol over two pipes, so that a stage needs no connection for it:
it is the stage's child, held to what the stage may reach, and it ends when nobody holds its pipes
any more, also where the stage was killed.
"""

import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import threading
import time
from contextlib import suppress
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from posttrain.stage.errors import UserError

CHROMIUM = "apt-get install chromium"
"""The line that installs the browser."""

_PLACES = ("/usr/lib/chromium/chromium", "/usr/lib/chromium-browser/chromium-browser")
"""The program itself, before the script that starts it, which reads settings of the machine."""
_NAMES = ("chromium", "chromium-browser", "google-chrome")

# No sandbox of its own, for which it would need namespaces: the stage is held already, pages are
# read from files, and what they would load from elsewhere is asked of a port that nobody serves.
_SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--mute-audio",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-dev-shm-usage",
    "--disable-default-apps",
    "--hide-scrollbars",
    "--disable-features=Translate,OptimizationHints",
    "--proxy-server=127.0.0.1:9",
    "--force-device-scale-factor=1",
    "--window-size=500,320",
    "--lang=en-US",
    "--renderer-process-limit=1",
)
# As a stage that declares nothing sees them: a page has the same dates and texts anywhere.
_FIXED = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
# The shell outlives the browser, however that ends, and removes its folder.
_LINE = '"$@" about:blank; rm -rf "$0"'
_MEMORY = "/dev/shm"
_MOST_PAGES = 8
"""Pages that are open at once; each is about 100 MB."""
_SECONDS = 60.0
"""A page that computes for longer hangs."""
_SECONDS_TO_END = 10.0


class Pages:
    """A browser with pages by their addresses; a page that is asked for again is still open."""

    def __init__(self) -> None:
        """Start the browser.

        Raises:
            UserError: There is none.

        """
        self._number = 0
        self._unread = b""
        self._sessions: dict[str, tuple[str, str]] = {}
        found = program()
        self.folder = profile = tempfile.mkdtemp(prefix="browser-", dir=_short_folder())
        self._in, theirs_out = os.pipe()
        theirs_in, self._out = os.pipe()
        # It reads from 3 and writes to 4: these two must not be in the way.
        reads, writes = (fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (theirs_in, theirs_out))
        try:
            self.process = os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", _LINE, profile, found, *_SWITCHES, f"--user-data-dir={profile}"],
                _environment(profile),
                file_actions=[
                    *((os.POSIX_SPAWN_OPEN, each, os.devnull, os.O_RDWR, 0) for each in (0, 1, 2)),
                    (os.POSIX_SPAWN_DUP2, reads, 3),
                    (os.POSIX_SPAWN_DUP2, writes, 4),
                ],
                setsid=True,
            )
        finally:
            for each in (theirs_in, theirs_out, reads, writes):
                os.close(each)
        # Also where a process of a stage ends, which does without `atexit`.
        self._ending = Finalize(
            self, _end, (self.process, profile, self._in, self._out), exitpriority=10
        )

    def evaluate(self, address: str, script: str) -> Any:
        """Compute a script in a page.

        Args:
            address: Of the page; it is opened if it is not.
            script: An expression of JavaScript with a value of JSON.

        Returns:
            The value.

        Raises:
            ConnectionError: The browser is gone, or the page hangs; nothing is open any more.
            RuntimeError: The script failed.

        """
        session = self._session(address)
        told = self._call("Runtime.evaluate", session, expression=script, returnByValue=True)
        if "exceptionDetails" in told:
            thrown = told["exceptionDetails"]
            raise RuntimeError(thrown.get("exception", {}).get("description") or thrown["text"])
        return told["result"].get("value")

    def close(self) -> None:
        """End the browser, and wait for it."""
        self._ending()

    def release(self) -> None:
        """Let go of the browser in a process that was forked from the one that started it."""
        for each in (self._in, self._out):
            with suppress(OSError):
                os.close(each)

    def version(self) -> str:
        """Name the browser, with its version."""
        return str(self._call("Browser.getVersion")["product"])

    def _session(self, address: str) -> str:
        """The session of a page, which is the last one used from now on."""
        if address not in self._sessions:
            if len(self._sessions) >= _MOST_PAGES:
                target, _ = self._sessions.pop(next(iter(self._sessions)))
                self._call("Target.closeTarget", targetId=target)
            target = self._call("Target.createTarget", url="about:blank")["targetId"]
            attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
            session = str(attached["sessionId"])
            self._call("Page.enable", session)
            # One page alone has the focus, and what waits for it would not hear of it in others.
            self._call("Emulation.setFocusEmulationEnabled", session, enabled=True)
            self._call("Page.navigate", session, url=address)
            self._until("Page.loadEventFired", session)
            self._sessions[address] = (target, session)
        self._sessions[address] = found = self._sessions.pop(address)
        return found[1]

    def _call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self._send(json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _SECONDS
        while True:
            told = self._receive(deadline)
            if told.get("id") == number:
                break
        if "error" in told:
            raise ConnectionError(f"the browser refuses {method}: {told['error']['message']}")
        return dict(told["result"])

    def _until(self, event: str, session: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while True:
            told = self._receive(deadline)
            if told.get("method") == event and told.get("sessionId") == session:
                return

    def _send(self, message: bytes) -> None:
        while message:
            message = message[os.write(self._out, message) :]

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise ConnectionError(f"a page has computed for {_SECONDS:g} s")
            read = os.read(self._in, 1 << 16)
            if not read:
                raise ConnectionError("the browser has ended")
            self._unread += read
        message, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(message))


def program() -> str:
    """Find the browser.

    Returns:
        Its path.

    Raises:
        UserError: There is none.

    """
    found = next(filter(os.path.isfile, _PLACES), None)
    found = found or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        raise UserError(f"pages need chromium, which is not installed; run: {CHROMIUM}")
    return found


def _environment(folder: str) -> dict[str, str]:
    """The variables that the browser needs: a page computes with dates, and it runs strange code,
    which has no use for a stage's secrets.
    """
    path = os.environ.get("PATH", os.defpath)
    return {**_FIXED, "PATH": path, "HOME": folder, "TMPDIR": folder}


def _short_folder() -> str | None:
    """Find where the browser may have its folder: its sockets are files there, of 107 bytes.

    The folder of a stage's temporary files is too long a name for that.
    """
    return _MEMORY if os.access(_MEMORY, os.W_OK) else None


def _end(process: int, folder: str, *pipes: int) -> None:
    """Let go of the browser's pipes, at which it ends; kill it with all its own if it does not."""
    for each in pipes:
        with suppress(OSError):
            os.close(each)
    deadline = time.monotonic() + _SECONDS_TO_END
    with suppress(ChildProcessError, ProcessLookupError):
        while os.waitpid(process, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.killpg(process, signal.SIGKILL)
                deadline += _SECONDS
            time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)  # of a browser that was killed with its shell


_lock = threading.Lock()
_open: list[Pages] = []
_seen: dict[str, None] = {}
"""The browsers that this process has started, each with its version, in order."""


def evaluate(address: Path, script: str) -> Any:
    """Compute a script in a page of this process's browser, which is started if there is none.

    Where the browser is lost, the script is computed once more in a new one: it must lead to the
    same from a page that was just opened.

    Args:
        address: The file of the page.
        script: See `Pages.evaluate`.

    Returns:
        Its value.

    Raises:
        UserError: There is no browser.
        ConnectionError: It was lost twice.
        RuntimeError: The script failed.

    """
    with _lock:
        try:
            return _evaluate(address.as_uri(), script)
        except OSError:
            _open.pop().close()
            return _evaluate(address.as_uri(), script)


def _evaluate(address: str, script: str) -> Any:
    if not _open:
        _open.append(Pages())
        _seen[_open[0].version()] = None
    return _open[0].evaluate(address, script)


def browsers_seen() -> str:
    """Name the browsers that pages of this process were shown in; empty where none was started."""
    return ", ".join(_seen)


def close() -> None:
    """End this process's browser, where there is one."""
    with _lock:
        while _open:
            _open.pop().close()


def _forget() -> None:
    """Let a process that was forked hold no pipes of the browser: it is its parent's."""
    global _lock
    _lock = threading.Lock()
    while _open:
        _open.pop().release()


os.register_at_fork(after_in_child=_forget)
