"""Stories in which somebody misses something, and where they think that it is."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from posttrain.data.sources.base import Source, SourceRequest, SourceRows
from posttrain.data.teachers.base import Solution, Teacher
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import stable_seed
from posttrain.stage.slots import InSlot, Part

if TYPE_CHECKING:
    from pathlib import Path


_WHO = ("ann", "ben", "cid")
_PLACES = ("box", "bag", "tin")
UNDERSTANDING = "social context understanding"
"""Tag of a short look at the situation."""


class BeliefSource(Source):
    """Tells who comes and goes while a ball is moved, a line each, and where one of them looks.

    One looks where one last saw the ball being put, so that the answer hangs on the order of the
    lines. Solutions are written in one of three modes, by chance: the answer at once; behind what
    was seen last; or behind what was believed after each line. Some of them are wrong.
    """

    SOURCE = (
        "stories as in ToMi (Le et al. 2019), with the three modes of TimeHC-RL, arXiv 2505.24500,"
        " section 3.2.1"
    )

    kind: Literal["beliefs"] = "beliefs"
    name: str = "beliefs"
    """Name of the source."""
    events: int = Field(default=4, ge=2)
    """Lines of a story behind the first; a story has two of them at least."""
    error_rate: float = Field(default=0.3, ge=0.0, le=1.0)
    """Probability that a solution says another place."""
    bare_rate: float = Field(default=0.2, ge=0.0, le=1.0)
    """Probability that one says the place alone, without any tag."""
    solutions: int = Field(default=2, ge=1)
    """Solutions of each problem."""
    verifier: Annotated[Part, InSlot("verifier")] = Field(
        default={"kind": "exact", "answer": "tag"}, validate_default=True
    )
    """What scores an answer."""

    def without_solutions(self, teacher: Teacher, path: "Path | None") -> str:  # noqa: ARG002
        """Say that it has solutions; see `TellsSolutions`."""
        return ""

    def read(self, request: SourceRequest) -> SourceRows:
        """Tell different stories, held-out ones first; see `Source.read`."""
        from posttrain.data.schemas import Problem

        draw = Random(stable_seed(request.seed, self.name))
        rows, seen = SourceRows(), {*request.sides}
        wanted = request.num_heldout + request.num_problems
        for _ in range(50 * wanted):
            lines, asked = self._story(draw)
            prompt = "\n".join((*lines, f"{asked} looks in"))
            if prompt in seen:
                continue
            seen.add(prompt)
            beliefs = beliefs_of(asked, lines)
            problem = Problem(self.name, prompt, beliefs[-1], len(lines) - 1, "")
            if len(rows.heldout) < request.num_heldout:
                rows.heldout.append(problem)
                continue
            rows.train.append(problem)
            texts = [self._solved(beliefs, draw) for _ in range(self.solutions)]
            rows.solutions.extend(Solution(problem, text, self.name) for text in texts)
            if len(rows.train) == request.num_problems:
                return rows
        raise UserError(
            f"synthesize.sources: {self.name} has fewer than {wanted} different stories of"
            f" {self.events} events; set events higher, or num_problems lower"
        )

    def _story(self, draw: Random) -> tuple[list[str], str]:
        """Lines of a story, and who is asked about."""
        there, place = set(_WHO), draw.choice(_PLACES)
        lines = [f"ball in {place}"]
        for _ in range(draw.randint(2, self.events)):
            who = draw.choice(_WHO)
            if draw.random() < 0.5:
                lines.append(f"{who} {'goes' if who in there else 'comes'}")
                there ^= {who}
            else:
                place = draw.choice([each for each in _PLACES if each != place])
                lines.append(f"ball in {place}")
        return lines, draw.choice(_WHO)

    def _solved(self, beliefs: Sequence[str], draw: Random) -> str:
        said = beliefs[-1]
        if draw.random() < self.error_rate:
            said = draw.choice([each for each in _PLACES if each != said])
        if draw.random() < self.bare_rate:
            return said
        thought = draw.choice(
            (
                "",
                f"<{UNDERSTANDING}>saw ball in {said}</{UNDERSTANDING}>",
                f"<think>{' '.join((*beliefs[:-1], said))}</think>",
            )
        )
        return f"{thought}<answer>{said}</answer>"


def beliefs_of(who: str, lines: Sequence[str]) -> list[str]:
    """Say where somebody thinks that the ball is, after each line of a story.

    >>> beliefs_of("ann", ["ball in box", "ann goes", "ball in bag", "ann comes"])
    ['box', 'box', 'box', 'box']

    Args:
        who: Of whom it is asked; there at the beginning.
        lines: Who comes and goes, and where the ball is put.

    Returns:
        A place for each line.

    """
    there, found = True, [""]
    for line in lines:
        subject, _, rest = line.partition(" ")
        if subject == who:
            there = rest == "comes"
        seen = subject == "ball" and there
        found.append(rest.removeprefix("in ") if seen else found[-1])
    return found[1:]
