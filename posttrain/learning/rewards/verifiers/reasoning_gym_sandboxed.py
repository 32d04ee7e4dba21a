"""Score answers to the problems of reasoning-gym whose scorers evaluate them: in the sandbox."""

import ast
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from posttrain.backends.sandbox import gym_scores
from posttrain.backends.sandbox.door import run_programs
from posttrain.backends.sandbox.program import MAX_SECONDS, Program
from posttrain.data.gym_generators import EXPRESSION, LITERAL
from posttrain.learning.rewards.score import CORRECT, NO_ANSWER, WRONG_ANSWER, Score
from posttrain.learning.rewards.verifiers.sandboxed import ERROR, TIMEOUT, SandboxVerifier

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

NOT_PLAIN = Score(0.0, "not_plain")

_AT_ONCE = 64
_START_SECONDS = 60.0
_MOST_CHARACTERS = 2000
_FUNCTIONS = frozenset({"Abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh"})
_FUNCTIONS |= {"cot", "coth", "csc", "csch", "erf", "exp", "ln", "log", "sec", "sech", "sin"}
_FUNCTIONS |= {"sinh", "sqrt", "tan", "tanh"}
_CONSTANTS = frozenset({"pi"})
_NODES = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.Pow,
    ast.UAdd,
    ast.USub,
    ast.Load,
)


class SandboxedGymVerifier(SandboxVerifier):
    """Score the final answer as reasoning-gym does, for the generators that evaluate it as code.

    An answer gets to such a scorer if it is a literal of Python, or an expression of numbers,
    variables of one letter and functions of mathematics: code, which could write its own score, and
    an unevaluated `Integral` do not. Further codes: "not_plain" (neither), "timeout", "error".
    """

    SOURCE = "reasoning-gym, arXiv:2505.24760: score_answer of each generator"

    kind: Literal["reasoning_gym_sandboxed"] = "reasoning_gym_sandboxed"
    memory_mb: int = Field(4096, ge=64, le=65536)
    """Most MiB of memory: the library is large."""

    def verify(self, texts: Sequence[str], problems: Sequence["Problem"]) -> list[Score]:
        """Score as many answers as there are with few starts; see `Verifier.verify`."""
        scores: dict[int, Score] = {}
        asked: list[tuple[int, tuple[str, str, Mapping[str, Any]]]] = []
        for place, (text, problem) in enumerate(zip(texts, problems, strict=True)):
            answer = self.answer.extract(text)
            if answer is None:
                scores[place] = NO_ANSWER
                continue
            metadata = json.loads(problem.metadata)
            generator = metadata.get("source_dataset", problem.source)
            entry = {"question": problem.prompt, "answer": problem.answer, "metadata": metadata}
            if may_be_scored(generator, answer, entry):
                asked.append((place, (generator, answer, entry)))
            else:
                scores[place] = NOT_PLAIN
        parts = [asked[at : at + _AT_ONCE] for at in range(0, len(asked), _AT_ONCE)]
        ends = run_programs([self._program([given for _, given in part]) for part in parts])
        for part, end in zip(parts, ends, strict=True):
            if not end.ok:
                raise RuntimeError(
                    f"reasoning-gym could not score in the sandbox: it {end.how} {end.code},"
                    f" {end.errors[-500:]}"
                )
            found = [_score(each) for each in json.loads(end.output)]
            scores |= zip((place for place, _ in part), found, strict=True)
        return [scores[place] for place in range(len(texts))]

    def _program(self, given: list[tuple[str, str, Mapping[str, Any]]]) -> Program:
        source = Path(gym_scores.__file__).read_bytes()
        stdin = json.dumps({"answers": given, "seconds": self.seconds}).encode()
        limits = self.limits(min(MAX_SECONDS, _START_SECONDS + self.seconds * len(given)))
        return Program((sys.executable, "main.py"), {"main.py": source}, stdin, limits)


def may_be_scored(generator: str, answer: str, entry: Mapping[str, Any]) -> bool:
    """Return whether an answer is plain enough for a scorer that evaluates it.

    Args:
        generator: Of the problem.
        answer: What the text states.
        entry: The problem, as the library has it.

    """
    if answer == entry["answer"] or answer in entry["metadata"].get("valid_answers", ()):
        return True
    if len(answer) > _MOST_CHARACTERS:
        return False
    try:
        if generator in LITERAL:
            ast.literal_eval(answer)
        elif generator in EXPRESSION:
            return all(map(_is_plain, _parts(ast.parse(answer, mode="eval"))))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _parts(tree: ast.AST) -> list[ast.AST]:
    """All parts of an expression, but the names of functions that are called with values alone."""
    called = {
        id(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _FUNCTIONS
        and not node.keywords
    }
    return [
        node for node in ast.walk(tree) if id(node) not in called and not _is_call(node, called)
    ]


def _is_call(node: ast.AST, called: set[int]) -> bool:
    return isinstance(node, ast.Call) and id(node.func) in called


def _is_plain(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    if isinstance(node, ast.Name):
        return len(node.id) == 1 or node.id in _CONSTANTS
    return isinstance(node, _NODES)


def _score(told: float | str) -> Score:
    if isinstance(told, str):
        return TIMEOUT if told == gym_scores.TOO_LATE else ERROR
    return CORRECT if told >= 1.0 else Score(max(told, 0.0), WRONG_ANSWER.reason)
