"""A server of tools: the package's own, by its input and output, or by HTTP at a port."""

import os
import sys
import time
from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("tools")


@server.tool()
def add(a: int, b: int) -> str:
    return str(a + b)


@server.tool()
def find(text: str) -> str:
    return f"<{text}>"


@server.tool()
def fails() -> str:
    raise ValueError("not today")


@server.tool()
def sleeps(seconds: float) -> str:
    time.sleep(seconds)
    return "awake"


@server.tool()
def number() -> str:
    return str(os.getpid())


@server.tool()
def ends(mark: str) -> str:
    with Path(mark).open("a") as file:
        file.write("x")
    os._exit(3)


if len(sys.argv) > 1:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run("stdio")
