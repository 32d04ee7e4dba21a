"""Python that the policy may use before it answers, in the sandbox."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.backends.sandbox.program import MIB, Program, ProgramEnd, ProgramLimits
from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.learning.episodes.environments.sandboxed import Sandboxed
from posttrain.learning.episodes.excerpt import excerpt

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

_BLOCK = re.compile(r"^```[ \t]*(?:python|py)?[ \t]*\n(.*?)^```[ \t]*$", re.M | re.S)


class Python(Sandboxed):
    """Run a block of code at the end of a turn and tell what it prints; a turn without is last.

    Each block is a program of its own, in a sandbox of its own. What fails, or is stopped at a
    limit, is told in a line and counted as a tool error.

    Source: own.
    """

    EXACT: ClassVar[bool] = False  # A program can read a clock.

    kind: Literal["python"] = "python"
    author: Literal["tool", "user"] = "tool"
    """As whose message the chat template writes what was printed; `user` for one that knows no
    tools."""
    seconds: float = Field(default=5.0, gt=0.0, le=600.0)
    """Most seconds of one program, by the clock and of processors."""
    memory_mb: int = Field(default=256, ge=64, le=65536)
    """Most MiB of memory of one program."""
    most_characters: int = Field(default=400, ge=1)
    """Of what it prints so much is told; what is cut off ends with ` ...`."""

    def start(self, problem: "Problem", seed: int) -> Situation:  # noqa: ARG002 - see the base
        """Ask; see `Environment.start`."""
        return Situation({}, (Ask(POLICY),))

    def programs(self, state: EpisodeState, acts: Sequence[Act]) -> list[Program]:  # noqa: ARG002
        """Take the block at the end of the turn; see `Sandboxed.programs`."""
        code = None if acts[0].cut else last_block(acts[0].text)
        return [] if code is None else [Program.of("python", code, limits=self._limits())]

    def answered(
        self,
        state: EpisodeState,
        acts: Sequence[Act],  # noqa: ARG002 - what its programs did is told
        ends: Sequence[ProgramEnd],
    ) -> Situation:
        """Tell what it printed, or how it failed; see `Sandboxed.answered`."""
        if not ends:
            return Situation(state)
        told, facts = self._told(ends[0]), {"tool_errors": 0.0 if ends[0].ok else 1.0}
        author = "tool:python" if self.author == "tool" else self.author
        return Situation(state, (Ask(POLICY, (Told(author, told),)),), facts=facts)

    def authors(self) -> tuple[str, ...]:
        """Name who speaks; see `Environment.authors`."""
        return (self.author,)

    def _limits(self) -> ProgramLimits:
        most = self.seconds
        return ProgramLimits(
            seconds=most, cpu_seconds=most, memory_bytes=self.memory_mb * MIB, output_bytes=64 << 10
        )

    def _told(self, end: ProgramEnd) -> str:
        said = excerpt(end.output.strip(), self.most_characters)
        if end.ok:
            return said or "nothing printed"
        last = end.errors.strip().rpartition("\n")[2]
        stopped = {"exit": f"exit code {end.code}", "signal": f"signal {end.code}"}
        why = stopped.get(end.how, f"stopped: {end.how}")
        if end.how == "exit" and last:
            why = excerpt(last, self.most_characters)
        return f"{said}\n{why}".strip()


def last_block(text: str) -> str | None:
    r"""Find the block of code that a turn ends with.

    >>> last_block("So:\n```python\nprint(6 * 7)\n```\n")
    'print(6 * 7)\n'

    Args:
        text: Of the turn.

    Returns:
        The code; None where the turn ends otherwise, or the block is empty or of another language.

    """
    blocks = list(_BLOCK.finditer(text))
    if not blocks or text[blocks[-1].end() :].strip() or not blocks[-1][1].strip():
        return None
    return blocks[-1][1]
