"""Serving the app on loopback until somebody stops it."""

import socket
import threading
from collections.abc import Callable

from posttrain.stage.errors import UserError
from posttrain.ui.app import create_app
from posttrain.ui.project import Project
from posttrain.views.charts import chart_scripts

LOOPBACK = "127.0.0.1"


def serve(project: Project, port: int, *, say: Callable[[str], None]) -> None:
    """Serve the app until it is interrupted.

    Args:
        project: What is looked at.
        port: On loopback; 0 takes a free one.
        say: Told where the app is, once it answers.

    Raises:
        UserError: The port is taken.

    """
    import uvicorn

    with bound(port) as listening:
        address = f"http://{LOOPBACK}:{listening.getsockname()[1]}"
        config = uvicorn.Config(create_app(project), log_level="warning", lifespan="off")
        # Vega is put together once on a machine, which takes seconds.
        threading.Thread(target=chart_scripts, name="charts", daemon=True).start()
        say(f"{project.root} is shown at {address}; Ctrl-C ends it")
        uvicorn.Server(config).run([listening])


def bound(port: int) -> socket.socket:
    """Take a port on loopback.

    Args:
        port: Which; 0 takes a free one.

    Returns:
        A socket that listens already, so that who asks early waits.

    Raises:
        UserError: Another process has it.

    """
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise UserError(
            f"port {port} on {LOOPBACK} cannot be taken: {error.strerror}; name another: --port 0"
        ) from None
    return listening
