"""Tools of a server of the Model Context Protocol that the policy may use before it answers."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    Environment,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.learning.episodes.environments.calls import arguments_of, last_call, tool_answered
from posttrain.learning.episodes.excerpt import excerpt
from posttrain.stage.declared import read_path
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.needs import ENDPOINT

if TYPE_CHECKING:
    from posttrain.backends.mcp.servers import ToolServer
    from posttrain.backends.mcp.session import Tool
    from posttrain.data.schemas import Problem

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OPENS = re.compile(r"([A-Za-z_][\w.-]*)\(")


class Mcp(Environment):
    """Answer calls of an MCP server's tools at the end of a turn; a turn without one is last.

    A call is `name({"key": value})`, or its values in the order of the tool's schema, as JSON:
    `name(12, "a")`; what a tool takes that takes one text may stand without quotes. What a tool
    says is wrong, and what is no call of one, is told in a line and counted as a tool error.

    Source: the Model Context Protocol, specification of 2025-06-18 (modelcontextprotocol.io).
    """

    EXACT: ClassVar[bool] = False

    kind: Literal["mcp"] = "mcp"
    command: tuple[str, ...] = ()
    """Starts the server, which is spoken to by its input and output: program and arguments;
    `python` is the interpreter of the stage. It may do what the stage may, and ends with it."""
    url: str | None = None
    """In place of a command, where a server of this machine listens: `http://127.0.0.1:8000/mcp`.
    """
    files: tuple[str, ...] = ()
    """Files and folders of the server, from the recipe's folder on, which the stage may read and
    which count by content. An argument of the command that is one of them is given as its path."""
    tools: tuple[str, ...] = ()
    """Tools that may be called, by name; all of the server's if empty."""
    listed: bool = False
    """Whether the policy reads the tools, a line each such as `add(a, b)`, before the problem."""
    author: Literal["tool", "user"] = "tool"
    """As whose message the chat template writes a result; `user` for one that knows no tools."""
    seconds: float = Field(default=10.0, gt=0.0, le=600.0)
    """Most seconds of one call, after which it is a tool error and the server is started anew."""
    seconds_to_start: float = Field(default=30.0, gt=0.0, le=600.0)
    """Most seconds until the server answers for the first time."""
    most_characters: int = Field(default=400, ge=1)
    """Of a result so much is told; what is cut off ends with ` ...`."""

    @model_validator(mode="after")
    def _one_server(self) -> Self:
        if bool(self.command) == (self.url is not None):
            raise ValueError("name the server by `command` or by `url`, one of both")
        parts = urlsplit(self.url or "")
        if self.url is not None and (
            parts.scheme != "http" or parts.hostname not in _LOOPBACK or parts.username
        ):
            raise ValueError(
                "url must be of this machine, like http://127.0.0.1:8000/mcp; start a server that"
                " lies elsewhere by a `command` that forwards to it"
            )
        return self

    def reaches(self) -> frozenset[str]:
        """Connect to a server that has an address."""
        return frozenset({ENDPOINT} if self.url is not None else ())

    def read_files(self) -> tuple[str, ...]:
        """Name the server's files; see `StageConfig.read_files`."""
        return self.files

    def authors(self) -> tuple[str, ...]:
        """Name who speaks; see `Environment.authors`."""
        return (self.author,)

    def start(self, problem: "Problem", seed: int) -> Situation:  # noqa: ARG002 - see the base
        """Ask, with the tools before the problem if it says so; see `Environment.start`."""
        try:
            tools = self._offered()
        except ConnectionError as error:
            raise UserError(
                f"environment mcp: {self.url or self.command[0]} is no server of tools: {error};"
                " correct `command` or `url`, and let `files` name what it reads"
            ) from None
        lines = [f"{tool.name}({', '.join(tool.parameters)})" for tool in tools.values()]
        new = (Told("user", "\n".join((*lines, problem.prompt))),) if self.listed else ()
        return Situation({}, (Ask(POLICY, new),))

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Call the tool that is called for; see `Environment.step`."""
        from posttrain.backends.mcp.servers import call

        (act,) = acts
        try:
            tools = self._offered()
            called = last_call(act.text, tools, opens=_OPENS, also_unknown=True)
            if called is None or act.cut:
                return Situation(state)
            name, inside = called
            if name not in tools:
                return self._told(state, name, f"no tool {name}", wrong=True)
            try:
                arguments = arguments_of(tools[name], inside)
            except ValueError as error:
                return self._told(state, name, str(error), wrong=True)
            text, wrong = call(self._server(), name, arguments)
        except ConnectionError as error:
            return Situation(state, failed=f"the server of tools: {error}")
        return self._told(state, name, text, wrong=wrong)

    def _told(self, state: EpisodeState, name: str, text: str, *, wrong: bool) -> Situation:
        text = excerpt(text.strip() or "nothing", self.most_characters)
        facts = {"tool_errors": 1.0} if wrong else {}
        return tool_answered(state, text, name=name, author=self.author, facts=facts)

    def _offered(self) -> "Mapping[str, Tool]":
        from posttrain.backends.mcp.servers import listed_tools

        tools = listed_tools(self._server())
        for name in self.tools:
            if name not in tools:
                raise UserError(
                    f"environment mcp: the server has no tool '{name}'"
                    f"{nearest(name, tools) or '; it has ' + (', '.join(tools) or 'none')}"
                )
        return {name: tools[name] for name in self.tools} if self.tools else tools

    def _server(self) -> "ToolServer":
        from posttrain.backends.mcp.servers import ToolServer

        words = tuple(
            str(read_path(each).resolve()) if each in self.files else each for each in self.command
        )
        return ToolServer(words, self.url or "", self.seconds, self.seconds_to_start)
