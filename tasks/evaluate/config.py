"""Parameters of an evaluation."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.episodes.sampling import EpisodeSamplingConfig
from posttrain.learning.rollouts.strategies.base import Strategy
from posttrain.learning.rollouts.strategies.registry import STRATEGIES
from posttrain.learning.rollouts.variants.base import Variant
from posttrain.learning.rollouts.variants.registry import VARIANTS
from posttrain.stage.hashing import sha256_of
from posttrain.stage.slots import InSlot

VariantName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class EvaluateConfig(EpisodeSamplingConfig):
    """How the policies are sampled and what is computed from the samples."""

    _OF_GREEDY: ClassVar[Mapping[str, Any]] = {"num_samples": 1, "pass_at": (1,)}
    part: Literal["all", "dev", "unseen"] = "all"
    """Which of the problems: all, those to choose settings by, or those that nobody chose by.
    `unseen` is refused where anything else in the recipe but an evaluation of `dev` draws on the
    same problems."""
    dev_share: float = Field(0.5, gt=0.0, lt=1.0)
    """Share of the problems that are `dev`, by their ids; equal in both evaluations."""
    pass_at: tuple[int, ...] = (1, 2, 4, 8)
    """The k of every pass@k (and best-of-k, where there is a reward model); 1 is always there."""
    strategies: tuple[Annotated[Strategy, InSlot(STRATEGIES)], ...] = ()
    """Further inference strategies to grade, beside pass@k, the vote and best-of-k."""
    variants: dict[VariantName, Annotated[Variant, InSlot(VARIANTS)]] = {}
    """Other ways to ask or to grade, by a name of one's own: interventions in the prompt, budgets
    of tokens, bins of length. Each is told beside what the policies do as they are asked."""
    num_exhibits: int = Field(6, ge=0)
    """Problems whose completions are shown side by side in the report."""

    def has(self, problem_id: str) -> bool:
        """Tell whether a problem is of the part that is evaluated, by its id alone."""
        if self.part == "all":
            return True
        place = int(sha256_of(f"dev {problem_id}")[:8], 16) / 16**8
        return (place < self.dev_share) == (self.part == "dev")

    @model_validator(mode="after")
    def _decodes_answers_otherwise(self) -> Self:
        odd = [
            name for name, each in self.variants.items() if type(each).drawn_by != Variant.drawn_by
        ]
        if odd and self.environment.authors():
            raise ValueError(
                f"the variant {odd[0]} draws one answer by an engine of its own, which no turn"
                " follows; leave it out, or the environment"
            )
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        beyond = [k for k in self.pass_at if k < 1 or k > self.num_samples]
        if beyond:
            raise ValueError(
                f"pass_at asks for k={beyond[0]} of {self.num_samples} samples;"
                " raise num_samples or set pass_at to smaller ones"
            )
        kinds = [strategy.kind for strategy in self.strategies]
        twice = next((kind for kind in kinds if kinds.count(kind) > 1), None)
        if twice is not None:
            raise ValueError(f"strategies has '{twice}' twice; leave one out")
        return self
