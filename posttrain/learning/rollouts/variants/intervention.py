"""Told more, or something else: a plan, a piece of knowledge, a way to answer."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import Formatter
from typing import TYPE_CHECKING, Literal, Self

from pydantic import model_validator

from posttrain.learning.rollouts.strategies.base import DrawnSamples
from posttrain.learning.rollouts.variants.base import Variant, compared
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.data.schemas import Problem


class Intervention(Variant):
    """Puts texts around every prompt, and asks anew with the same randomness.

    `pass_at_1` is how often samples are right then, `change` that less how often they are as the
    problems stand, problem by problem; `length` is the mean number of tokens. A text may name keys
    of a problem's metadata, such as `{plan}`.
    """

    SOURCE = (
        "Wang et al., 'Beyond Accuracy: Dissecting Mathematical Reasoning for LLMs Under"
        " Reinforcement Learning' (SPARKLE), arXiv:2506.04723, section 3: plans, knowledge and"
        " subproblems in context"
    )

    kind: Literal["intervention"] = "intervention"
    system: str = ""
    """System prompt, in place of the problem's own."""
    before: str = ""
    """Text before the prompt, in its message."""
    after: str = ""
    """Text behind the prompt, in its message."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.system or self.before or self.after):
            raise ValueError("an intervention says something: set system, before or after")
        return self

    def posed(self, problems: Sequence["Problem"]) -> "Sequence[Problem]":
        """Put the texts around every prompt; see `Variant.posed`."""
        from posttrain.data.contexts import PromptContext

        posed = []
        for problem in problems:
            context = PromptContext.read(problem.context)
            said = {
                "system": self._filled("system", problem) or context.system,
                "before": self._filled("before", problem) + context.before,
                "after": context.after + self._filled("after", problem),
            }
            posed.append(replace(problem, context=context.model_copy(update=said).written()))
        return posed

    def measured(
        self,
        drawn: DrawnSamples,
        plain: DrawnSamples,
        problems: Sequence["Problem"],  # noqa: ARG002 - see `Variant.measured`
    ) -> Mapping[str, "Tensor"]:
        """Compare with the plain problems; see `Variant.measured`."""
        return compared(drawn, plain)

    def _filled(self, field: str, problem: "Problem") -> str:
        text: str = getattr(self, field)
        known = json.loads(problem.metadata)
        for _, name, _, _ in Formatter().parse(text):
            if name is not None and name not in known:
                raise UserError(
                    f"evaluate.variants: {field} names {{{name}}}, which the metadata of problem"
                    f" {problem.id} has not; there are {', '.join(known) or 'none'}"
                )
        return text.format_map(known)
