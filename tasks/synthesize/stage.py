"""Make problems and worked solutions, verify every solution, keep the wrong ones apart."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from posttrain.data.schemas import (
    COMPLETIONS,
    DROPPED,
    PROBLEMS,
    Completion,
    completions_table,
    problems_table,
)
from posttrain.data.source_verifiers import scored_by_source, write_verifiers
from posttrain.data.sources.base import Side, Source, SourceRequest, SourceRows
from posttrain.data.tables import write_table
from posttrain.data.teachers.base import Solution, TeacherRequest
from posttrain.learning.rewards.references import refuse_unread_answers
from posttrain.learning.rewards.score import NO_ANSWER, final_answer, of_play
from posttrain.learning.rewards.verify import by_verifier, metadata_for, verify_all
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import counted
from posttrain.stage.slots import Part
from tasks.synthesize.config import SynthesizeConfig

_MOST_CHARS = 40
_OTHERWISE = (
    "leave `solution` out of the source's columns where nothing learns from solutions, as in"
    " distillation and RL"
)


def run(
    config: SynthesizeConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Go through the sources in order, then write the tables, and what scored."""
    config.check_names("synthesize")
    made = SourceRows()
    # What is held out as a whole comes first, so that nothing of it is trained on.
    ordered = sorted(config.sources, key=lambda source: not source.only_heldout)
    for number, source in enumerate(ordered):
        _read(made, source, config, context, inputs.get(f"files.{source.name}"))
        context.progress(number + 1, len(ordered), unit="source")
    refuse_unread_answers([*made.train, *made.heldout])
    _solve(made, config, context)
    scored = list(_verified(made.solutions))
    corpus = completions_table(scored)
    accepted = pl.col("verified").fill_null(value=False)
    traces = corpus.filter(accepted)
    rejected = corpus.filter(~accepted)
    _refuse_empty(made)
    # What was played and earned something may teach, though nobody solved it: a bandit has no end.
    earned = any(solution.score for solution in made.solutions)
    if made.solutions and traces.is_empty() and not earned:
        _refuse_all_rejected(made.solutions, scored)
    if not made.solutions:
        context.note("no problem has a worked solution, so RL alone can learn from them")
    write_table(problems_table(made.train), outputs["problems"], PROBLEMS)
    write_table(problems_table(made.heldout), outputs["heldout"], PROBLEMS)
    verifiers = {source.name: getattr(source, "verifier", None) for source in config.sources}
    named = {name: part for name, part in verifiers.items() if isinstance(part, Part)}
    write_verifiers(outputs["verifiers"], named)
    write_table(corpus, outputs["corpus"], COMPLETIONS)
    write_table(traces, outputs["traces"], COMPLETIONS)
    write_table(rejected, outputs["rejected"], DROPPED)
    return {
        "synthesize/num_problems": len(made.train),
        "synthesize/num_heldout": len(made.heldout),
        "synthesize/num_solutions": len(corpus),
        "synthesize/verified_fraction": len(traces) / max(1, len(corpus)),
    }


def _refuse_empty(made: SourceRows) -> None:
    """Stop where a table that the next stages need would be empty; say how to fill it."""
    for what, problems in (("to train on", made.train), ("held out", made.heldout)):
        if not problems:
            raise UserError(
                f"synthesize: there is no problem {what}; "
                "change synthesize.heldout_fraction, or give the sources more rows"
            )


def _refuse_all_rejected(solutions: Sequence[Solution], scored: Sequence[Completion]) -> None:
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


def _read(
    made: SourceRows,
    source: Source,
    config: SynthesizeConfig,
    context: StageContext,
    path: Path | None,
) -> None:
    """Read one source after those that are in `made` already."""
    sides: dict[str, Side] = {problem.prompt: "train" for problem in made.train}
    sides |= {problem.prompt: "heldout" for problem in made.heldout}
    rows = source.read(
        SourceRequest(
            seed=context.seed,
            num_problems=config.num_problems,
            num_heldout=config.num_heldout,
            heldout_fraction=config.heldout_fraction,
            scratch=context.scratch,
            sides=sides,
            path=path,
            answer_of=lambda text: final_answer(text) or text,
            metadata_of=metadata_for,
        )
    )
    rows = scored_by_source(source.in_context(rows), source)
    if rows.train and not rows.heldout and getattr(source, "use", None) == "parted":
        context.note(
            f"{source.name}: none of its {counted(len(rows.train), 'problem')} is held out; by"
            f" content, synthesize.heldout_fraction {config.heldout_fraction:g} takes more or fewer"
            " of so few: raise it, or give more rows"
        )
    made.train.extend(rows.train)
    made.heldout.extend(rows.heldout)
    made.solutions.extend(rows.solutions)


def _solve(made: SourceRows, config: SynthesizeConfig, context: StageContext) -> None:
    """Let the teacher solve what has no solution yet."""
    solved = {solution.problem.id for solution in made.solutions}
    open_problems = [problem for problem in made.train if problem.id not in solved]
    total = len(open_problems) * config.solutions_per_problem
    request = TeacherRequest(
        per_problem=config.solutions_per_problem,
        seed=context.seed,
        report=lambda done: context.progress(done, total, unit="solution"),
    )
    made.solutions.extend(config.teacher.solve(open_problems, request))


def _verified(solutions: Sequence[Solution]) -> Iterator[Completion]:
    """Score every solution, but for those that were played out."""
    asked = [(each.text, each.problem) for each in solutions if each.score is None]
    scores = iter(verify_all(asked))
    for solution in solutions:
        score = next(scores) if solution.score is None else of_play(solution.score)
        yield Completion(
            solution.problem,
            solution.text,
            solution.generator,
            score.value,
            score.correct,
            score.reason,
            solution.weight,
            solution.between,
            solution.read,
        )
