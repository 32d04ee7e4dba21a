"""Reference answers that a verifier cannot read, found before anything is computed."""

from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.learning.rewards.score import final_answer
from posttrain.learning.rewards.verify import by_verifier
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from posttrain.data.schemas import Problem
    from posttrain.data.sources.base import Source
    from posttrain.stage.spec import Stage

_LOOKED_AT = 1000
"""Rows of a local file that are looked at before anything runs; the stage looks at all."""
_SHOWN, _MOST_CHARS = 5, 40


def refuse_unread_answers(problems: "Sequence[Problem]") -> None:
    """Refuse problems of files whose answers their verifiers cannot compare with.

    Args:
        problems: With what scores them; those of no file are right by the way they are made.

    Raises:
        UserError: There are some; the first ones are named by file and line.

    """
    of_files = [problem for problem in problems if problem.origin_file]
    for verifier, places in by_verifier([("", problem) for problem in of_files]):
        unread = [of_files[place] for place in places if not verifier.reads(of_files[place])]
        if not unread:
            continue
        first, *others = sorted(unread, key=lambda each: (each.origin_file, each.origin_line))
        answer = (
            first.answer
            if len(first.answer) <= _MOST_CHARS
            else f"...{first.answer[-_MOST_CHARS:]}"
        )
        lines = [f"{each.origin_file}:{each.origin_line}" for each in others]
        more = ", ".join(lines[:_SHOWN]) + (", ..." if len(lines) > _SHOWN else "")
        raise UserError(
            f"{first.origin_file}:{first.origin_line}: the verifier '{verifier.kind}' cannot read"
            f" the answer {answer!r}, so nothing would ever count as right"
            + (f" ({counted(len(others), 'more row')} like it: {more})" if others else "")
            + "; correct the answers, or give the source another verifier, such as 'exact'"
        )


def refuse_unread_rows(stage: "Stage", sources: "Sequence[Source]") -> None:
    """Look at the first rows of each local file before anything runs.

    Args:
        stage: Has the files at its port `files`.
        sources: As its config has them.

    Raises:
        UserError: A row is no problem, or has an answer that its verifier cannot read.

    """
    from posttrain.data.source_verifiers import scored_by_source
    from posttrain.data.sources.base import SourceRequest, SourceRows

    for source in sources:
        file = stage.inputs.get(f"files.{source.name}")
        request = SourceRequest(
            seed=0,
            num_problems=1,
            num_heldout=1,
            heldout_fraction=1.0,
            scratch=Path(),
            path=file.path if file else None,
            answer_of=lambda text: final_answer(text) or text,
        )
        rows = SourceRows(source.first_problems(request, _LOOKED_AT))
        refuse_unread_answers(scored_by_source(rows, source).train)
