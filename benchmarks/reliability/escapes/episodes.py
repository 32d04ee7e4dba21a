"""Attempts to escape as turns of episodes: what the environment `python` runs, and tells."""

from collections.abc import Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from pydantic import PrivateAttr

from benchmarks.reliability.escapes.attempts import Surroundings, achieved
from benchmarks.reliability.escapes.case import Escape
from posttrain.backends.sandbox.program import MIB, ProgramEnd, ProgramLimits
from posttrain.data.schemas import Problem
from posttrain.learning.episodes.environments.base import POLICY, Act, EpisodeState, Said, Situation
from posttrain.learning.episodes.environments.python import Python

_PROBLEM = Problem("escapes", "6 * 7 =", "42", 1, "exact")
_SHELL = """\
import os
with open("main.sh", "w") as file:
    file.write({source!r})
os.execv("/bin/sh", ["/bin/sh", "main.sh"])
"""
# As much as programs have in the sandbox otherwise, so that attempts end as they do there.
_MEMORY_MB = ProgramLimits().memory_bytes // MIB


class _Watched(Python):
    """Keep how each program ended."""

    kind: Literal["python"] = "python"
    _ends: list[ProgramEnd] = PrivateAttr(default_factory=list)

    def answered(
        self, state: EpisodeState, acts: Sequence[Act], ends: Sequence[ProgramEnd]
    ) -> Situation:
        self._ends.extend(ends)
        return super().answered(state, acts, ends)

    @property
    def ends(self) -> list[ProgramEnd]:
        """How the programs ended, in their order."""
        return self._ends


class Attempt(NamedTuple):
    """What came of an escape that was tried in an episode."""

    escape: Escape
    achieved: str
    """What it achieved that it must not; empty where it was contained."""
    end: ProgramEnd


def attempts(escapes: Sequence[Escape], around: Surroundings) -> list[Attempt]:
    """Play an episode of each escape, those of equal limits side by side.

    The second turn prints a number: an attempt must break nothing for what follows it either.

    Args:
        escapes: What is tried in the first turn.
        around: What lies around the sandbox.

    Returns:
        What each achieved.

    """
    found: list[Attempt] = []
    ordered = sorted(escapes, key=lambda each: each.seconds)
    for seconds, group in groupby(ordered, key=lambda each: each.seconds):
        tried = list(group)
        environment = _Watched(seconds=seconds, memory_mb=_MEMORY_MB, most_characters=1000)
        first = [environment.start(_PROBLEM, place) for place in range(len(tried))]
        told = _said(environment, first, [_block(each, around) for each in tried])
        ends = list(environment.ends)
        last = _said(environment, told, ["```python\nprint(6 * 7)\n```"] * len(tried))
        for escape, end, here, after in zip(tried, ends, told, last, strict=True):
            what = _read(here, after) or achieved(escape, end, around)
            found.append(Attempt(escape, what, end))
    return found


def _said(
    environment: Python, situations: Sequence[Situation], texts: Sequence[str]
) -> list[Situation]:
    return environment.step_all(
        [
            Said(each.state, [Act(POLICY, text)], place)
            for place, (each, text) in enumerate(zip(situations, texts, strict=True))
        ]
    )


def _block(escape: Escape, around: Surroundings) -> str:
    """The turn in which it is tried."""
    source = escape.told(around.facts)
    if escape.language == "shell":
        source = _SHELL.format(source=source)
    return f"```python\n{source}\n```"


def _read(here: Situation, after: Situation) -> str:
    """What is wrong with what the policy was told; empty where nothing is."""
    if here.failed or after.failed:
        return f"the episode broke: {here.failed or after.failed}"
    told, then = (each.asks[0].new[0].text for each in (here, after))
    if "ESCAPED" in told:
        return told[:200]
    return "" if then == "42" else f"the next turn reads {then[:100]}"
