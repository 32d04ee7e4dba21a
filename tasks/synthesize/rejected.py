"""What is wrong where not one solution was accepted."""

from collections import Counter
from collections.abc import Sequence

from posttrain.data.schemas import Completion
from posttrain.data.teachers.base import Solution
from posttrain.learning.rewards.score import NO_ANSWER
from posttrain.learning.rewards.verify import by_verifier
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import counted

_MOST_CHARS = 40
_OTHERWISE = (
    "leave `solution` out of the source's columns where nothing learns from solutions, as in"
    " distillation and RL"
)


def refuse_all_rejected(solutions: Sequence[Solution], scored: Sequence[Completion]) -> None:
    """Refuse solutions of which no verifier accepted one, and say why it did not.

    Args:
        solutions: As they came.
        scored: The same with their verdicts, in their order.

    Raises:
        UserError: Names the first row of a file that brought its own solution, where there is one.

    """
    brought = [place for place, each in enumerate(solutions) if _is_brought(each)]
    if not brought:
        raise UserError(
            "synthesize: no solution was verified, so there is nothing to train on; lower"
            " synthesize.teacher.error_rate (or error_rate of the source, where a script plays a"
            " world), or check the sources' verifier and answers"
        )
    (reason, _), *_ = Counter(scored[place].reason for place in brought).most_common(1)
    first = solutions[next(place for place in brought if scored[place].reason == reason)]
    problem = first.problem
    text = first.text if len(first.text) <= _MOST_CHARS else f"...{first.text[-_MOST_CHARS:]}"
    row = f"{problem.origin_file}:{problem.origin_line}"
    ((verifier, _),) = by_verifier([(first.text, problem)])
    none = f"synthesize: none of the {counted(len(brought), 'solution')} that the sources bring"
    if reason == NO_ANSWER.reason:
        raise UserError(
            f"{none} states an answer where the verifier '{verifier.kind}' looks for it,"
            f" {verifier.place()} ({row} is {text!r}); write solutions that end so, let the"
            f" verifier look elsewhere, as in verifier: {{kind: {verifier.kind}, answer:"
            f" last_line}}, or {_OTHERWISE}"
        )
    raise UserError(
        f"{none} is right by the verifier '{verifier.kind}': {reason} ({row} is {text!r}, and the"
        f" answer is {problem.answer[-_MOST_CHARS:]!r}); correct solutions, answers or verifier,"
        f" or {_OTHERWISE}"
    )


def _is_brought(solution: Solution) -> bool:
    """Whether a row of a file has it, and no teacher or script made it."""
    return bool(solution.problem.origin_file) and solution.generator.startswith("file:")
