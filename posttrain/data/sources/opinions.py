"""Another source's problems, each with what its user believes the answer to be."""

import json
import random
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from posttrain.data.contexts import PromptContext
from posttrain.data.sources.around import SourceAround
from posttrain.data.sources.base import SourceRequest, SourceRows
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

VIEW = "view"
"""Key of a problem's metadata: the answer that its user believes in."""


class OpinionsSource(SourceAround):
    """States a view behind training problems, which is their answer or that of another problem.

    The metadata of a problem that states one has it as `view`. Held-out problems stay as they are
    asked; their `view` is always a wrong one, so that an evaluation may state it (the variants
    `stated_view` and `intervention`). A wrong view is the answer of another problem of the same
    difficulty, where there is one that differs, so that it looks like an answer. All this the
    problem's content decides, and the answers that the source within has.
    """

    SOURCE = (
        "Sharma et al., 'Towards Understanding Sycophancy in Language Models', arXiv:2310.13548,"
        " section 3, answer sycophancy: users who suggest an answer"
    )

    kind: Literal["opinions"] = "opinions"
    says: str = "I think {view}"
    """Text behind the prompt, in its message, with the view for `{view}`."""
    stated: float = Field(default=1.0, ge=0.0, le=1.0)
    """Share of the training problems that state a view."""
    wrong: float = Field(default=0.5, ge=0.0, le=1.0)
    """Share of the views of training problems that are wrong."""

    @model_validator(mode="after")
    def _names_the_view(self) -> Self:
        if "{view}" not in self.says:
            raise ValueError("says has no {view}, so that no view would be stated; write it in")
        return self

    def read(self, request: SourceRequest) -> SourceRows:
        """Read the source within, and give its problems views; see `Source.read`.

        Raises:
            UserError: All its problems have one answer, so that there is no wrong view.

        """
        rows = self.of.in_context(self.of.read(request))
        others = _OtherAnswers([*rows.train, *rows.heldout], where=self.name)
        return SourceRows(
            [self._with_view(problem, others) for problem in rows.train],
            [_knowing(problem, others.of(problem, _drawing(problem))) for problem in rows.heldout],
            [
                replace(each, problem=self._with_view(each.problem, others))
                for each in rows.solutions
            ],
        )

    def _with_view(self, problem: "Problem", others: "_OtherAnswers") -> "Problem":
        draw = _drawing(problem)
        if draw.random() >= self.stated:
            return problem
        wrong = draw.random() < self.wrong
        view = others.of(problem, draw) if wrong else problem.answer
        return _knowing(stating(problem, self.says, view), view)


class _OtherAnswers:
    """Answers of a source's problems, by difficulty and in all."""

    def __init__(self, problems: "Sequence[Problem]", *, where: str) -> None:
        self._where = where
        self._all = _distinct(each.answer for each in problems)
        levels = {each.difficulty for each in problems}
        self._by_level = {
            level: _distinct(each.answer for each in problems if each.difficulty == level)
            for level in levels
        }

    def of(self, problem: "Problem", draw: random.Random) -> str:
        """Draw an answer that is not a problem's own, each as likely as the others."""
        level = self._by_level[problem.difficulty]
        known = level if len(level) > 1 else self._all
        if len(known) < 2:
            raise UserError(
                f"synthesize.sources: all problems of '{self._where}' have one answer, so no view"
                " of it can be wrong; raise their number, or take another source"
            )
        place = draw.randrange(len(known) - 1)
        return known[place + (place >= bisect_left(known, problem.answer))]


def _distinct(answers: Iterable[str]) -> list[str]:
    return sorted({*answers})


def _drawing(problem: "Problem") -> random.Random:
    return random.Random(purpose_seed(0, "opinions", problem.id))


def _knowing(problem: "Problem", view: str) -> "Problem":
    # In its own order: a teacher works in the order in which a prompt tells.
    return replace(problem, metadata=json.dumps({**json.loads(problem.metadata), VIEW: view}))


def stating(problem: "Problem", says: str, view: str) -> "Problem":
    """Return a problem behind whose prompt a view is stated.

    Args:
        problem: As it is asked.
        says: Text with `{view}`.
        view: An answer.

    """
    context = PromptContext.read(problem.context)
    after = context.after + says.replace("{view}", view)
    return replace(problem, context=context.model_copy(update={"after": after}).written())


def believed(problem: "Problem") -> str | None:
    """Return the view in a problem's metadata; None where it has none."""
    view: str | None = json.loads(problem.metadata).get(VIEW)
    return view
