"""Tools of the library's toolsets, called in this process in place of a server for each."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.backends.mcp.session import Tool
from posttrain.stage.errors import UserError


class ToolsInProcess:
    """The tools of a task and of its taskset, with one rollout's state behind them."""

    def __init__(self, trace: Any) -> None:
        """Offer nothing yet.

        Args:
            trace: Of the rollout, whose state the tools read and write.

        """
        self._trace = trace
        self._servers: dict[str, Any] = {}
        self._toolsets: list[Any] = []
        self.offered: dict[str, Tool] = {}
        """By the name under which the policy calls them."""
        self.described: list[Any] = []
        """The same as the library has it in requests."""

    async def open(self, toolsets: Sequence[Any], task: Any) -> None:
        """Set toolsets up, and list what they offer.

        Args:
            toolsets: Of the library.
            task: The task's data; None for the toolsets that all tasks share.

        Raises:
            UserError: A toolset lies at an address, or has another state than the task.

        """
        from mcp.server.mcpserver import MCPServer
        from verifiers.v1 import Tool as Described
        from verifiers.v1.state import State, state_cls

        for toolset in toolsets:
            if getattr(toolset.config, "url", None):
                raise UserError(
                    f"environment verifiers: the toolset {type(toolset).__name__} lies at an"
                    " address; leave `url` out, so that it runs here"
                )
            kind = state_cls(type(toolset))
            if kind is not State and not isinstance(self._trace.state, kind):
                raise UserError(
                    f"environment verifiers: the toolset {type(toolset).__name__} keeps a"
                    f" {kind.__name__}, and the task another state; give both the same"
                )
            toolset._pull_state, toolset._push_state = self._pull, self._push
            self._toolsets.append(toolset)
            await toolset.setup()
            if task is not None:
                await toolset.setup_task(task)
            server = MCPServer(toolset.server_name or type(toolset).__name__)
            toolset.register(server)
            for each in await server.list_tools():
                prefix = f"{toolset.server_name}_" if toolset.server_name else ""
                name = f"{prefix}{each.name}"
                fields = each.input_schema.get("properties", {})
                texts = (key for key, told in fields.items() if told.get("type") == "string")
                self._servers[name] = (server, each.name)
                self.offered[name] = Tool(name, tuple(fields), frozenset(texts))
                about = each.description or ""
                self.described.append(
                    Described(name=name, description=about, parameters=each.input_schema)
                )

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """Call a tool.

        Args:
            name: Of one that is offered.
            arguments: By name.

        Returns:
            What it says, and whether that is that the call failed.

        """
        server, bare = self._servers[name]
        try:
            found = await server.call_tool(bare, dict(arguments))
        except Exception as error:  # noqa: BLE001 - a tool may break in any way, which is told
            return str(error), True
        parts = (getattr(each, "text", f"[{each.type}]") for each in found.content)
        return "\n".join(parts), bool(found.is_error)

    async def close(self) -> None:
        """Free what toolsets hold."""
        for toolset in self._toolsets:
            await toolset._exit_stack.aclose()

    async def _pull(self) -> Any:
        return self._trace.state

    async def _push(self, before: bytes) -> None:
        """Do nothing: the state that a tool wrote is that of the rollout."""


def written_arguments(arguments: Mapping[str, Any]) -> str:
    """Write a call's arguments as the library has them."""
    return json.dumps(dict(arguments))
