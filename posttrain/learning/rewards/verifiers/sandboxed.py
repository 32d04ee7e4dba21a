"""What verifiers share that run what a model wrote."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from posttrain.backends.sandbox.door import run_programs
from posttrain.backends.sandbox.launch import BUBBLEWRAP
from posttrain.backends.sandbox.program import MIB, Program, ProgramEnd, ProgramLimits
from posttrain.learning.rewards.score import CORRECT, NO_ANSWER, WRONG_ANSWER, Score
from posttrain.learning.rewards.verifiers.comparing import ComparingVerifier
from posttrain.stage.needs import SANDBOX

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

TIMEOUT = Score(0.0, "timeout")
ERROR = Score(0.0, "error")
NOT_RUN = Score(None, "lost")
"""Where the machine had no room for the programs of an answer."""


class SandboxVerifier(ComparingVerifier):
    """Runs programs for each answer; derive from it, and define `programs` and `judged`.

    A program is lost where its sandbox ends under it. That may be the machine's doing, which had no
    room, or the program's own, so that it must gain nothing: a lost program runs once more after
    all others, and if it is lost again, so does one of ours that takes as much memory. Only where
    that is lost too the answer is not judged ("lost"); else it is judged by what did not end well.
    """

    NEEDS: ClassVar[frozenset[str]] = frozenset({SANDBOX})
    PROGRAMS: ClassVar[Mapping[str, str]] = {"bwrap": BUBBLEWRAP}

    seconds: float = Field(5.0, gt=0.0, le=600.0)
    """Most seconds of one test, or one query."""
    memory_mb: int = Field(512, ge=64, le=65536)
    """Most MiB of memory of one program."""

    def reaches(self) -> frozenset[str]:
        """Ask for the sandbox."""
        return self.NEEDS

    def programs(self, answer: str, problem: "Problem") -> list[Program]:
        """Make the programs that judge an answer.

        Args:
            answer: The code.
            problem: What it answers.

        Returns:
            What to run; nothing where the answer is judged without.

        """
        raise NotImplementedError

    def judged(self, ends: Sequence[ProgramEnd], problem: "Problem") -> Score:
        """Score an answer by how its programs ended.

        Args:
            ends: Of `programs`, in their order.
            problem: What the answer is to.

        Returns:
            Number and reason.

        """
        raise NotImplementedError

    def reads(self, problem: "Problem") -> bool:  # noqa: ARG002 - nothing runs before the stage
        """Leave it to the stage, as programs would have to run; see `Verifier.reads`."""
        return True

    def score(self, text: str, problem: "Problem") -> Score:
        """Score one answer; see `Verifier.score`."""
        return self.verify([text], [problem])[0]

    def verify(self, texts: Sequence[str], problems: Sequence["Problem"]) -> list[Score]:
        """Run the programs of all answers at once; see `Verifier.verify`."""
        found = [self.answer.extract(text) for text in texts]
        asked = [
            [] if answer is None else self.programs(answer, problem)
            for answer, problem in zip(found, problems, strict=True)
        ]
        ends = iter(self._run([program for programs in asked for program in programs]))
        scores = []
        for answer, programs, problem in zip(found, asked, problems, strict=True):
            own = [next(ends) for _ in programs]
            if answer is None:
                scores.append(NO_ANSWER)
            elif None in own:
                scores.append(NOT_RUN)
            else:
                scores.append(self.judged([end for end in own if end is not None], problem))
        return scores

    def _run(self, programs: Sequence[Program]) -> list[ProgramEnd | None]:
        """Run programs, the lost ones twice; None for those that the machine had no room for."""
        ends: list[ProgramEnd | None] = list(run_programs(programs))
        for place in _lost(ends):
            ends[place] = run_programs([programs[place]])[0]
        lost = _lost(ends)
        if lost and run_programs([self._harmless()])[0].how == "lost":
            for place in lost:
                ends[place] = None
        return ends

    def _harmless(self) -> Program:
        """A program that takes most of the memory that one of an answer may take, and ends."""
        # The interpreter needs some itself.
        taken = self.memory_mb * MIB // 2
        return Program.of("python", f"b'x' * {taken}", limits=self.limits())

    def limits(self, seconds: float = 0.0) -> ProgramLimits:
        """Return the limits of one program.

        Args:
            seconds: By the clock; those of one test where it is left out.

        Returns:
            With the memory that the verifier allows.

        """
        most = seconds or self.seconds
        return ProgramLimits(seconds=most, cpu_seconds=most, memory_bytes=self.memory_mb * MIB)


def _lost(ends: Sequence[ProgramEnd | None]) -> list[int]:
    return [place for place, end in enumerate(ends) if end is not None and end.how == "lost"]


def share_score(passed: int, count: int, ends: Sequence[ProgramEnd] = ()) -> Score:
    """Score the share of tests that passed; what went wrong otherwise is told by the reason.

    Args:
        passed: Tests that passed.
        count: All tests.
        ends: How programs ended.

    Returns:
        Number and reason.

    """
    if passed == count:
        return CORRECT
    late = any(end.how in ("time", "cpu") for end in ends)
    return Score(passed / count, (TIMEOUT if late else WRONG_ANSWER).reason)
