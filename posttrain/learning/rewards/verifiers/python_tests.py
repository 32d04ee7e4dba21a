"""A Python program is right if its tests pass: in the sandbox, and where it cannot reach them."""

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from posttrain.backends.sandbox import judge
from posttrain.backends.sandbox.program import MAX_SECONDS, Program, ProgramEnd
from posttrain.learning.rewards.extractors.base import Extractor
from posttrain.learning.rewards.extractors.code import CodeAnswer
from posttrain.learning.rewards.extractors.registry import EXTRACTORS
from posttrain.learning.rewards.score import Score
from posttrain.learning.rewards.verifiers.sandboxed import (
    ERROR,
    TIMEOUT,
    SandboxVerifier,
    share_score,
)
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

_START_SECONDS = 10.0


class InputOutput(StageConfig):
    """A test of a whole program: what it reads, and what it must write."""

    input: str
    """Standard input."""
    output: str
    """Standard output; white space at the ends of lines is free."""


class PythonTestsVerifier(SandboxVerifier):
    """Run the tests of the problem in the sandbox; the score is the share that passes.

    Further codes: "error" (the program cannot be loaded), "timeout" (a test takes too long).
    """

    REFERENCE: ClassVar[bool] = False
    SOURCE = "execution-based evaluation as in HumanEval, arXiv:2107.03374, and MBPP, 2108.07732"

    kind: Literal["python_tests"] = "python_tests"
    answer: Annotated[Extractor, InSlot(EXTRACTORS)] = CodeAnswer(
        languages=("python", "py", "python3")
    )
    """Where the program stands."""
    tests: tuple[str | InputOutput, ...] = ()
    """Each is Python text that raises where the program is wrong, or input and expected output."""
    setup: str = ""
    """Python that runs before each text: the imports that the tests need."""

    def programs(self, answer: str, problem: "Problem") -> list[Program]:
        """Make one program for all texts, and one for each pair; see `SandboxVerifier.programs`."""
        if not self.tests:
            raise UserError(
                f"problem {problem.id} of '{problem.source}' has no tests; name the column that"
                " holds them in `parameters` of its source: {tests: ...}"
            )
        programs = [
            Program.of("python", answer, stdin=pair.input, limits=self.limits())
            for pair in self._pairs
        ]
        if self._texts:
            order = {
                "source": answer,
                "setup": self.setup,
                "tests": self._texts,
                "names": _defined(self.expected(problem)),
                "seconds": self.seconds,
            }
            whole = min(MAX_SECONDS, _START_SECONDS + self.seconds * (1 + len(self._texts)))
            source = Path(judge.__file__).read_text(encoding="utf-8")
            told = json.dumps(order)
            programs.append(Program.of("python", source, stdin=told, limits=self.limits(whole)))
        return programs

    def judged(self, ends: Sequence[ProgramEnd], problem: "Problem") -> Score:
        """Count the tests that passed; see `SandboxVerifier.judged`."""
        passed = sum(
            end.ok and _same(end.output, pair.output)
            for end, pair in zip(ends, self._pairs, strict=False)
        )
        verdicts = _verdicts(ends[-1], len(self._texts)) if self._texts else []
        broken = next((each for each in verdicts if each.startswith("setup: ")), None)
        if broken is not None:
            raise UserError(
                f"problem {problem.id} of '{problem.source}': its tests cannot run, whatever the"
                f" answer ({broken.removeprefix('setup: ')}); correct its `tests` or `setup`"
            )
        passed += verdicts.count("passed")
        if any(each.startswith("error") for each in verdicts):
            return Score(passed / len(self.tests), ERROR.reason)
        if "timeout" in verdicts:
            return Score(passed / len(self.tests), TIMEOUT.reason)
        return share_score(passed, len(self.tests), ends)

    @property
    def _texts(self) -> list[str]:
        return [each for each in self.tests if isinstance(each, str)]

    @property
    def _pairs(self) -> list[InputOutput]:
        return [each for each in self.tests if isinstance(each, InputOutput)]


def _verdicts(end: ProgramEnd, count: int) -> list[str]:
    """The judge's word on each test; where it could not speak, none passed."""
    if end.ok:
        found = json.loads(end.output)
        if len(found) == count:
            return [str(each) for each in found]
    return ["timeout" if end.how in ("time", "cpu") else "failed"] * count


def _defined(reference: str) -> list[str]:
    """Names of the functions and classes of a reference; none where it is no Python or not there.

    Of what Python has too, such as `sum`, the tests mean the program's where it stands here.
    """
    try:
        body = ast.parse(reference).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [each.name for each in body if isinstance(each, kinds)]


def _same(output: str, expected: str) -> bool:
    """Compare line by line; white space at the ends of lines and of the text is free."""
    lines = [line.rstrip() for line in output.strip().splitlines()]
    return lines == [line.rstrip() for line in expected.strip().splitlines()]
