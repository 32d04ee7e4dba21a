"""How often samples are right by the source of their problems, as figures of a claim."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from posttrain.learning.rollouts.strategies.base import DrawnSamples
from posttrain.learning.rollouts.variants.base import Variant
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.data.schemas import Problem

_LEAST = "least"


class BySource(Variant):
    """Gives the accuracy of each source under its name, and `least`, that of the worst one.

    The interval of `least` is that of the source which is the worst in these samples.
    """

    SOURCE = "accuracy by domain: Guru, arXiv 2506.14965"

    kind: Literal["by_source"] = "by_source"

    def measured(
        self,
        drawn: DrawnSamples,
        plain: DrawnSamples,  # noqa: ARG002 - see `Variant.measured`
        problems: Sequence["Problem"],
    ) -> Mapping[str, "Tensor"]:
        """Grade the problems of each source; see `Variant.measured`.

        Returns:
            Right or not by problem, for each source and for the worst; not a number elsewhere.

        Raises:
            UserError: A source has the name of the figure of the worst one.

        """
        import torch

        if any(problem.source == _LEAST for problem in problems):
            raise UserError(
                f"evaluate.variants: a source is called {_LEAST}, and so is the figure of the worst"
                " one; give the source another name"
            )
        right_P = drawn.correct_PN.double().mean(-1)
        found: dict[str, Tensor] = {}
        for name in sorted({problem.source for problem in problems}):
            of_it_P = torch.tensor([problem.source == name for problem in problems])
            found[name] = right_P.where(of_it_P, right_P.new_full((), float("nan")))
        worst = min(found, key=lambda name: float(found[name].nanmean()))
        return {**found, _LEAST: found[worst]}
