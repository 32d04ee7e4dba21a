"""What a judge has said of the same answer before."""

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class StoredComponent(Component):
    """The verdict that a table holds on this very answer to this problem; nobody is asked.

    The table comes through the stage's port `verdicts`, from a stage of the task `judge`. An answer
    that it does not know, and one of which the judge could not tell, is not judged.

    Source: own.
    """

    RANGE: ClassVar[Range] = (-1e6, 1e6)

    kind: Literal["stored"] = "stored"
    verdict: str
    """Name under which the verdicts were stored: that of the component that gave them."""
    judge: str | None = None
    """Whose verdicts, as the table names judges; null where each answer has one by that name."""
    least: float = 0.0
    """The least score of the table; a lower one is refused."""
    most: float = 1.0
    """The greatest score of the table; a higher one is refused."""

    @model_validator(mode="after")
    def _has_ends(self) -> Self:
        if not self.least < self.most:
            raise ValueError(f"least {self.least:g} is not below most {self.most:g}; lower it")
        return self

    def ports(self) -> Sequence[str]:
        """Return the port of the table; see `Component.ports`."""
        return ("verdicts",)

    def bounds(self, *, solved: bool) -> Range:  # noqa: ARG002 - a judge may be wrong
        """Return the ends that the recipe states."""
        return self.least, self.most

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Look the answers up; see `Component.score`."""
        from posttrain.learning.rewards.port_tables import subject_of
        from posttrain.stage.errors import UserError

        verdicts = known.tables.verdicts(self.verdict, self.judge)
        found = [verdicts.get(subject_of(group.problem.id, text)) for text in group.texts]
        beyond = [x for x in found if x is not None and not self.least <= x <= self.most]
        if beyond:
            raise UserError(
                f"rl.reward: a stored verdict called '{self.verdict}' is {beyond[0]:g}, which is"
                f" not from {self.least:g} to {self.most:g}; set the component's least and most"
            )
        return found
