"""A creator rewrites the most informative problems, and the solver learns on what it wrote too."""

from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.backends.endpoint.config import filled
from posttrain.learning.rl.exchanges.base import Exchange, ExchangeRound
from posttrain.learning.rl.exchanges.evolved import answers_to, rewritten
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.learning.rl.generation import Generation
    from posttrain.learning.rl.member import Member
    from posttrain.learning.rl.rollout import Group
    from posttrain.learning.rl.rollouter import Draft


class Creator(Exchange):
    """Let the second policy rewrite problems, drawn by how much the first one's rewards differ.

    The first policy answers the problems of a step. Of these some are drawn, in proportion to the
    best less the worst reward of their answers; the second policy rewrites each, and the first one
    answers what it wrote. It learns from these groups and from its own ones that make up the step.
    The second policy does not learn, and what it wrote earns nothing. A new problem has no label:
    the reward is to ask none, and what a label says of answers to it counts as unknown.
    """

    SOURCE = "Ye et al. 2025, arXiv 2411.00062"
    METRICS: ClassVar[Mapping[str, str]] = {
        "informativeness": "best less worst reward of the answers to a problem, mean of a step's",
        "informativeness_of_chosen": "the same of those that were rewritten",
        "informativeness_of_new": "the same of what was written",
        "new": "problems that were written and answered",
    }
    LEAST: ClassVar[int] = 2
    MOST: ClassVar[int] = 2

    kind: Literal["creator"] = "creator"
    evolved: int = Field(default=4, ge=1)
    """Most problems of a step that are rewritten; what is written stands in the place of others."""
    by: Literal["informativeness", "chance"] = "informativeness"
    """How they are drawn; by `chance` every problem is equally likely, whatever was earned."""
    asks: tuple[str, ...] = Field(
        default=(
            "{prompt}\n\nRewrite this problem into one that is harder but about as long, and that"
            " has one answer. Write the new problem alone.",
            "{prompt}\n\nWrite a new problem of another subject that is about as long and as hard,"
            " and that has one answer. Write the new problem alone.",
        ),
        min_length=1,
    )
    """What the second policy reads, in depth and in breadth; one is drawn for each problem."""

    @model_validator(mode="after")
    def _reads_the_problem(self) -> Self:
        if lacking := [each for each in self.asks if "{prompt}" not in each]:
            raise ValueError(f"asks has '{lacking[0]}', without {{prompt}}; write it there")
        return self

    def generations(self, members: "Sequence[Member]", at: ExchangeRound) -> "list[Generation]":
        """Answer, rewrite, and answer what was written; see `Exchange.generations`."""
        solver, creator = members
        draft = solver.draft(at.step, at.config)
        own = solver.rewarded(solver.answers(draft), step=at.step)
        found = [informativeness(group) for group in own]
        chosen = self.drawn(found, Random(purpose_seed(at.seed, "evolved")))
        asks = self._asks(draft, chosen, Random(purpose_seed(at.seed, "asks")))
        written, problems = rewritten(creator, draft, asks)
        new = answers_to(solver, draft, problems, at)
        at.measured.update(
            informativeness=fmean(found),
            informativeness_of_chosen=fmean(found[each] for each in chosen),
            new=float(len(new)),
            **({"informativeness_of_new": fmean(map(informativeness, new))} if new else {}),
        )
        chance = Random(purpose_seed(at.seed, "kept"))
        kept = chance.sample(range(len(own)), max(0, len(own) - len(new)))
        made = solver.only(solver.of_step(own, at.step, at.config), kept)
        idle = creator.only(creator.of_step(written, at.step, at.config), ())
        return [solver.learning(made, new), idle]

    def drawn(self, found: Sequence[float], chance: Random) -> list[int]:
        """Draw the problems that are rewritten, without replacement.

        Args:
            found: Informativeness of each problem of the step.
            chance: What is drawn by.

        Returns:
            Places of at most `evolved` problems, in order. By informativeness none that has none,
            unless no problem has any: then all are equally likely.

        """
        evenly = self.by == "chance" or not any(found)
        weights = [1.0 for _ in found] if evenly else found
        # Exponential races: the first to finish are a weighted draw without replacement.
        finish = {
            place: chance.expovariate(1.0) / weight
            for place, weight in enumerate(weights)
            if weight > 0.0
        }
        return sorted(sorted(finish, key=finish.__getitem__)[: self.evolved])

    def _asks(self, draft: "Draft", chosen: Sequence[int], chance: Random) -> dict[int, str]:
        """What the second policy reads of each problem that was drawn, by its place."""
        return {
            place: filled(chance.choice(self.asks), prompt=draft.problems[place].prompt)
            for place in chosen
        }


def informativeness(group: "Group") -> float:
    """Best less worst reward of the answers to a problem, of those that could be judged."""
    rewards = [row.reward for row in group if row.reward is not None]
    return max(rewards) - min(rewards) if rewards else 0.0
