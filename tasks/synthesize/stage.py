"""Make problems and worked solutions, verify every solution, keep the wrong ones apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from posttrain.data.schemas import (
    COMPLETIONS,
    DROPPED,
    PROBLEMS,
    Completion,
    Problem,
    completions_table,
    problems_table,
)
from posttrain.data.tables import write_table
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.synthesize.config import FileSource, GymSource, ServerTeacher, SynthesizeConfig
from tasks.synthesize.files import Side, falls_in_heldout, read_file_source
from tasks.synthesize.gym import attempts, check_source, generate
from tasks.synthesize.teachers.server import ask_teacher


@dataclass
class Made:
    """What the sources gave so far."""

    train: list[Problem] = field(default_factory=list)
    heldout: list[Problem] = field(default_factory=list)
    corpus: list[Completion] = field(default_factory=list)
    prompts: set[str] = field(default_factory=set)


def run(
    config: SynthesizeConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Go through the sources in order, then write the five tables."""
    made = Made()
    for number, source in enumerate(_held_out_first(config.sources)):
        if isinstance(source, GymSource):
            _generated(made, source, config, context.seed)
        else:
            path = inputs.get(f"files.{source.name}")
            _read(made, source, config, path, scratch=context.scratch)
        context.progress(number + 1, len(config.sources), unit="source")
    if config.teacher is not None:
        _ask(made, config.teacher, config, context)
    corpus = completions_table(made.corpus)
    accepted = pl.col("verified").fill_null(value=False)
    traces = corpus.filter(accepted)
    rejected = corpus.filter(~accepted)
    _refuse_empty(made, traces)
    write_table(problems_table(made.train), outputs["problems"], PROBLEMS)
    write_table(problems_table(made.heldout), outputs["heldout"], PROBLEMS)
    write_table(corpus, outputs["corpus"], COMPLETIONS)
    write_table(traces, outputs["traces"], COMPLETIONS)
    write_table(rejected, outputs["rejected"], DROPPED)
    return {
        "synthesize/num_problems": len(made.train),
        "synthesize/num_heldout": len(made.heldout),
        "synthesize/num_solutions": len(corpus),
        "synthesize/verified_fraction": len(traces) / len(corpus),
    }


def _refuse_empty(made: Made, traces: pl.DataFrame) -> None:
    """Stop where a table that the next stages need would be empty; say how to fill it."""
    for what, problems in (("to train on", made.train), ("held out", made.heldout)):
        if not problems:
            raise UserError(
                f"synthesize: there is no problem {what}; "
                "change synthesize.heldout_fraction, or give the sources more rows"
            )
    if not made.corpus:
        raise UserError(
            "synthesize: no source has a worked solution, so there is nothing to train on; "
            "map a column to solution in a source's columns, or add a source with solutions"
        )
    if traces.is_empty():
        raise UserError(
            "synthesize: no solution was verified, so there is nothing to train on; "
            "lower synthesize.error_rate, or check the sources' verifier and answers"
        )


def _generated(made: Made, source: GymSource, config: SynthesizeConfig, seed: int) -> None:
    """Held-out problems are drawn first: the easy levels have few prompts to share."""
    check_source(source, programs_solve=config.teacher is None)
    made.heldout += generate(
        source, num_problems=config.num_heldout, seed=seed, split="heldout", seen=made.prompts
    )
    fresh = generate(
        source, num_problems=config.num_problems, seed=seed, split="train", seen=made.prompts
    )
    made.train += fresh
    if config.teacher is None:
        made.corpus += attempts(
            fresh,
            per_problem=config.solutions_per_problem,
            error_rate=config.error_rate,
            seed=seed,
        )


def _ask(
    made: Made, teacher: ServerTeacher, config: SynthesizeConfig, context: StageContext
) -> None:
    """Let the teacher solve what has no solution yet."""
    solved = {completion.problem.id for completion in made.corpus}
    open_problems = [problem for problem in made.train if problem.id not in solved]
    total = len(open_problems) * config.solutions_per_problem
    made.corpus += ask_teacher(
        teacher,
        open_problems,
        per_problem=config.solutions_per_problem,
        seed=context.seed,
        report=lambda done: context.progress(done, total, unit="solution"),
    )


def _read(
    made: Made, source: FileSource, config: SynthesizeConfig, path: Path | None, *, scratch: Path
) -> None:
    """A prompt that an earlier source had stays on the side on which it is already.

    A file for training alone loses the prompts that are held out.
    """
    heldout = {problem.prompt for problem in made.heldout}

    def side(prompt: str) -> Side:
        if source.use == "train":
            return None if prompt in heldout else "train"
        if source.use == "heldout":
            return "heldout"
        known = prompt in made.prompts
        held = prompt in heldout if known else falls_in_heldout(prompt, config.heldout_fraction)
        return "heldout" if held else "train"

    found = read_file_source(source, path, side=side, scratch=scratch)
    made.train += found.sides["train"]
    made.heldout += found.sides["heldout"]
    made.corpus += found.solutions
    made.prompts |= {problem.prompt for part in found.sides.values() for problem in part}


def _held_out_first(sources: Sequence[GymSource | FileSource]) -> list[GymSource | FileSource]:
    """What is held out as a whole comes first, so that nothing of it is trained on."""
    return sorted(
        sources, key=lambda each: not (isinstance(each, FileSource) and each.use == "heldout")
    )
