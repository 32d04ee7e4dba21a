"""A port of this machine that nobody else can reach."""

import socket

from posttrain.stage.errors import UserError

LOOPBACK = "127.0.0.1"
HOSTS = (LOOPBACK, "localhost")
"""Names under which a server answers: a page of another name may not read it through a browser."""


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
