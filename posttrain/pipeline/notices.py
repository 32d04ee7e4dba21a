"""Tell somebody: a command gets a notice as JSON on standard input, a web address by POST.

Of runs that a person starts as of those that a schedule does; the section `notify` of a recipe says
who is told of what.
"""

import json
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from posttrain.stage.config import StageConfig
from posttrain.stage.errors import first_line

_COMMAND_SECONDS, _WEB_SECONDS = 60, 20.0
Event = Literal["failure", "success", "missed", "gates"]


class NoticeSettings(StageConfig):
    """Who is told, and of what."""

    url: str | None = Field(default=None, pattern=r"^https?://")
    """Web address that gets a notice as JSON."""
    command: str | None = None
    """Local command that gets the same on standard input, in the project's folder."""
    on: tuple[Event, ...] = ("failure", "missed", "gates")
    """failure: a run did not end well; success: it did; missed: a scheduled run could not be made;
    gates: `posttrain release create` or `posttrain diff` found gates that fail."""

    @field_validator("command")
    @classmethod
    def _command(cls, text: str | None) -> str | None:
        return require_command(text)

    def wants(self, event: Event) -> bool:
        """Whether anybody is told of such an event."""
        return event in self.on and (self.url is not None or self.command is not None)


def require_command(text: str | None) -> str | None:
    """Check that a shell would split a command; a `ValueError` where it would not."""
    try:
        shlex.split(text or "")
    except ValueError as error:
        raise ValueError(f"no command that a shell would take: {error}") from None
    return text


def tell(settings: NoticeSettings, event: Event, notice: Mapping[str, Any], root: Path) -> str:
    """Tell of an event as a recipe asks; what goes wrong is said, and costs nothing else.

    Args:
        settings: Of the recipe.
        event: What happened.
        notice: The facts.
        root: The project, in which the command runs.

    Returns:
        A sentence on what came of it; empty where nobody asked to be told.

    """
    if not settings.wants(event):
        return ""
    text = json.dumps({"event": event, **notice})
    return "; ".join(send_notice(text, url=settings.url, command=settings.command, root=root))


def send_notice(text: str, *, url: str | None, command: str | None, root: Path) -> list[str]:
    """Give a notice to a command and to a web address.

    Args:
        text: JSON.
        url: Where it is posted; None posts nothing.
        command: What gets it on standard input; None runs nothing.
        root: Where the command runs.

    Returns:
        What came of each.

    """
    said = []
    if command:
        try:
            done = subprocess.run(
                shlex.split(command), input=text, cwd=root, text=True,
                capture_output=True, check=False, timeout=_COMMAND_SECONDS,
            )  # fmt: skip
            said.append(f"notice given, exit code {done.returncode}")
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            said.append(f"the notice could not be given: {first_line(error)}")
    if url:
        import httpx

        headers = {"Content-Type": "application/json"}
        try:
            answer = httpx.post(url, content=text, timeout=_WEB_SECONDS, headers=headers)
            said.append(f"notice sent, answered {answer.status_code}")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            said.append(f"the notice could not be sent: {first_line(error)}")
    return said


def notice_settings(section: Mapping[str, Any]) -> NoticeSettings:
    """Read the section `notify` of a recipe; a `UserError` for what may not stand there."""
    return NoticeSettings.parse(section, where="notify")
