"""A Verilog module is right if its test bench says so: Icarus Verilog, in the sandbox."""

import re
import secrets
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from posttrain.backends.sandbox.launch import search_path
from posttrain.backends.sandbox.program import Program, ProgramEnd
from posttrain.learning.rewards.extractors.base import Extractor
from posttrain.learning.rewards.extractors.code import CodeAnswer
from posttrain.learning.rewards.extractors.registry import EXTRACTORS
from posttrain.learning.rewards.score import CORRECT, WRONG_ANSWER, Score
from posttrain.learning.rewards.verifiers.sandboxed import ERROR, TIMEOUT, SandboxVerifier
from posttrain.stage.errors import UserError
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

NOT_A_DESIGN = Score(0.0, "not_a_design")

_VERDICT = "{verdict}"
# A design computes: what prints, ends, reads files or names what is outside of it is a test
# bench's. With it a design could write the verdict, or set what the test bench has counted.
_CALLS = frozenset(
    {"$signed", "$unsigned", "$clog2", "$bits", "$size", "$high", "$low", "$left", "$right"}
)
_CALL = re.compile(r"\$\w+")
_OUTSIDE = re.compile(
    r"`(?!timescale\b|default_nettype\b|resetall\b)|\b(?:force|release|bind)\b|[A-Za-z_]\w*\s*\.\s*\w"
)
# A carriage return ends a line for Icarus, and so a comment. A backslash begins a name that may
# hold quotes, `\a"`, behind which all would be taken for prose: it is left, and refused.
_PROSE = re.compile(r'//[^\r\n]*|/\*.*?\*/|"(?:[^"\\\r\n]|\\.)*"', re.S)
# `$0` is the word of the verdict, and the first line says it. Where the two do not compile, the
# bench is parsed alone: is it the one that is broken?
_RUN = (
    "echo $0; iverilog -g2012 -o compiled design.sv bench.sv 2>errors || { cat errors;"
    ' iverilog -g2012 -i -tnull bench.sv 2>&1 | sed -n "s/^bench.sv:.*syntax error/$0 &/p";'
    " exit 1; } && rm design.sv bench.sv && exec vvp -n compiled"
)


class VerilogVerifier(SandboxVerifier):
    """Compile a module with the problem's test bench, and read the last verdict that it prints.

    A bench prints its verdict by `$display("{verdict} %0d %0d", passed, count)`; the word stands
    for one that a design cannot know. Further codes: "error" (it does not compile), "timeout",
    "not_a_design" (it prints, ends, opens files or reaches out of itself).
    """

    REFERENCE: ClassVar[bool] = False
    PROGRAMS = {**SandboxVerifier.PROGRAMS, "iverilog": "apt-get install iverilog"}
    SOURCE = "test benches as in VerilogEval, arXiv:2309.07544"

    kind: Literal["verilog"] = "verilog"
    answer: Annotated[Extractor, InSlot(EXTRACTORS)] = CodeAnswer(
        languages=("verilog", "systemverilog", "sv", "v")
    )
    """Where the module stands."""
    bench: str = ""
    """The test bench; the row says it, mostly."""

    def programs(self, answer: str, problem: "Problem") -> list[Program]:
        """Make the program that compiles and runs; see `SandboxVerifier.programs`."""
        if _VERDICT not in self.bench:
            raise UserError(
                f"problem {problem.id} of '{problem.source}': its test bench prints no {_VERDICT};"
                ' let it end with $display("{verdict} %0d %0d", passed, count)'
            )
        if shutil.which("iverilog", path=search_path()) is None:
            raise UserError(
                f"the verifier 'verilog' needs Icarus Verilog; run: {self.PROGRAMS['iverilog']}"
            )
        if not is_design(answer):
            return []
        word = f"verdict-{secrets.token_hex(16)}"
        files = {
            "design.sv": _bytes(answer),
            "bench.sv": _bytes(self.bench.replace(_VERDICT, word)),
        }
        return [Program(("/bin/sh", "-c", _RUN, word), files, limits=self.limits())]

    def judged(self, ends: Sequence[ProgramEnd], problem: "Problem") -> Score:
        """Read the verdict; see `SandboxVerifier.judged`."""
        if not ends:
            return NOT_A_DESIGN
        end = ends[0]
        if end.how in ("time", "cpu"):
            return TIMEOUT
        word, _, said = end.output.partition("\n")
        broken = re.search(rf"^{re.escape(word)} (bench\.sv:.*)$", said, re.M)
        # A bench that takes names of types from the design cannot be parsed without.
        if broken is not None and "::" not in self.bench:
            raise UserError(
                f"problem {problem.id} of '{problem.source}': its test bench does not compile"
                f" ({broken[1]}); correct it"
            )
        told = re.findall(rf"^{re.escape(word)} +(\d+) +(\d+)$", said, re.M)
        if not told or int(told[-1][1]) < 1:
            return ERROR if end.how == "exit" and end.code else WRONG_ANSWER
        share = min(1.0, int(told[-1][0]) / int(told[-1][1]))
        return CORRECT if share >= 1.0 else Score(share, WRONG_ANSWER.reason)


def is_design(source: str) -> bool:
    """Return whether a module computes alone: it prints nothing and names nothing outside of it.

    Args:
        source: Verilog.

    """
    text = _PROSE.sub(" ", source)
    if "\\" in text or _OUTSIDE.search(text) is not None:
        return False
    return _CALLS.issuperset(_CALL.findall(text))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
