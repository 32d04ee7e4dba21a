"""Prefect's temporary server, which comes up while Prefect itself is imported by the run.

Its import takes four seconds of the processor, and that of the client one and a half. The server is
given a socket on which is listened already, so that its port is known and nobody takes it.
"""

import atexit
import gc
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from posttrain.pipeline.execution import die_with_parent
from posttrain.pipeline.execution.failures import ServerFailed
from posttrain.views.tracking.blank import is_like_blank, keep_blank, lay_blank

_POLL_SECONDS, _ANSWER_SECONDS, _STOP_SECONDS = 0.02, 20.0, 5.0
_LOOK_SECONDS, _RECORDED_SECONDS = 0.05, 3.0
AS_TEMPORARY = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
}
"""Variables with which Prefect starts the server that it starts for itself."""
# Where the database has all tables and block types of this very version.
_AS_IT_IS = {
    "PREFECT_API_DATABASE_MIGRATE_ON_START": "false",
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
}


class TemporaryServer:
    """A server of Prefect's with the database of this project, which ends with this process."""

    def __init__(self, home: Path, *, seconds: float) -> None:
        """Start it; it takes requests at once, and answers them when it is up.

        Args:
            home: `PREFECT_HOME`, where the database is.
            seconds: How long it may take to come up.

        """
        home.mkdir(parents=True, exist_ok=True)
        self._database = home / "prefect.db"
        self._new = not self._database.is_file() and not lay_blank("prefect", self._database)
        self._seconds = seconds
        kept = {} if self._new or not is_like_blank("prefect", self._database) else _AS_IT_IS
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
            self.url = f"http://127.0.0.1:{listening.getsockname()[1]}/api"
            command = (sys.executable, "-P", "-m", __name__, str(listening.fileno()))
            package = str(Path(__file__).parents[3])
            path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
            environment = {**os.environ, **AS_TEMPORARY, **kept, "PYTHONPATH": path}
            self._process = kept_process(command, environment, listening.fileno())
        atexit.register(self.stop)

    def wait(self) -> None:
        """Wait until it answers.

        Raises:
            ServerFailed: It ended, or did not answer in time.

        """
        await_answer(f"{self.url}/health", self._process, self._seconds)
        if self._new:
            keep_blank("prefect", self._database, emptied=["configuration"])

    def end(self, flow_run: str, *, ended: int) -> None:
        """Let it end once it has recorded the task runs of a flow run; `stop` waits for its end.

        It hears of task runs by messages, records them later, and drops at its end what it has not.

        Args:
            flow_run: Prefect's id.
            ended: How many task runs of it are over.

        """
        from prefect.events.worker import EventsWorker

        EventsWorker.drain_all(timeout=_RECORDED_SECONDS)
        deadline = time.monotonic() + _RECORDED_SECONDS
        while self._num_recorded(flow_run) < ended and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        self._process.terminate()

    def _num_recorded(self, flow_run: str) -> float:
        """How many task runs of a flow run are over by its records; infinite if it cannot tell."""
        over = {"type": {"any_": ["COMPLETED", "FAILED", "CRASHED", "CANCELLED"]}}
        asked = {"flow_runs": {"id": {"any_": [flow_run]}}, "task_runs": {"state": over}}
        request = urllib.request.Request(
            f"{self.url}/task_runs/count",
            json.dumps(asked).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
                return int(answer.read())
        except OSError:
            return float("inf")

    def stop(self) -> None:
        """Leave no process behind."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def await_answer(url: str, process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Wait until a server answers.

    Args:
        url: Is asked for.
        process: The server.
        seconds: How long it may take.

    Raises:
        ServerFailed: It ended, or did not answer in time.

    """
    deadline = time.monotonic() + seconds
    while not _answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            how = "did not answer in time" if process.poll() is None else "ended"
            raise ServerFailed(
                f"Prefect's temporary server {how}; run the same command again, or with --local"
            )
        time.sleep(_POLL_SECONDS)


def kept_process(
    command: Sequence[str], environment: Mapping[str, str], *passed: int
) -> "subprocess.Popen[bytes]":
    """Start a program that ends with this process, from a thread which waits for its end.

    The kernel takes the end of the thread that started it for the end of the program's parent.

    Args:
        command: Program and arguments.
        environment: All of its variables.
        passed: Numbers of files that it inherits.

    """
    tied = (sys.executable, "-I", die_with_parent.__file__, str(os.getpid()))
    started: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()

    def keep() -> None:
        process = subprocess.Popen(
            [*tied, *command], env=environment, pass_fds=passed, start_new_session=True
        )
        started.put(process)
        process.wait()

    threading.Thread(target=keep, name="prefect server", daemon=True).start()
    return started.get()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_SECONDS) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def main() -> None:
    """Body of the process: serve on the socket that was handed over, until SIGTERM."""
    # What is imported stays; to look for garbage in it takes a fifth of the time.
    gc.disable()
    import uvicorn
    from prefect.server.api.server import create_app

    # The application looks for garbage itself once it is made: it takes 0.3 s with what is there.
    gc.freeze()
    app = create_app()
    gc.freeze()
    gc.enable()
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        config = uvicorn.Config(app, log_level="error", lifespan="on")
        server = uvicorn.Server(config)
        server.handle_exit = falling_silent(server.handle_exit)  # type: ignore[method-assign]
        server.run(sockets=[listening])


def falling_silent(then: Callable[..., None]) -> Callable[..., None]:
    """Say nothing more on standard error once a signal asks for the end, and do `then`.

    What the server breaks off at its end its libraries tell with a traceback, each by a logger of
    its own; nobody waits for it any more.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
        then(number, frame)

    return handle


if __name__ == "__main__":
    main()
