"""Another source's problems, each told in one of several ways."""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.data.contexts import PromptContext
from posttrain.data.sources.around import SourceAround
from posttrain.data.sources.base import SourceRequest, SourceRows
from posttrain.stage.seeds import stable_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class ToldSource(SourceAround):
    """Puts one of several texts before each training problem; held-out ones stay as they are.

    Which one, the problem's content decides. So an evaluation asks held-out problems as it chooses,
    by the variant `intervention`, and plainly where it says nothing.
    """

    SOURCE = (
        "Zhang et al., 'Making Small Language Models Efficient Reasoners', arXiv:2505.07961,"
        " abstract: prompts that ask for short, medium or long reasoning (TLDR)"
    )

    kind: Literal["told"] = "told"
    before: tuple[str, ...] = Field(min_length=1)
    """The texts; `""` leaves a problem as it is."""

    def read(self, request: SourceRequest) -> SourceRows:
        """Read the source within, and tell its training problems; see `Source.read`."""
        rows = self.of.in_context(self.of.read(request))
        return SourceRows(
            [self._told(problem) for problem in rows.train],
            rows.heldout,
            [replace(each, problem=self._told(each.problem)) for each in rows.solutions],
        )

    def _told(self, problem: "Problem") -> "Problem":
        text = self.before[stable_seed(0, "told", problem.id) % len(self.before)]
        if not text:
            return problem
        context = PromptContext.read(problem.context)
        said = context.model_copy(update={"before": text + context.before})
        return replace(problem, context=said.written())
