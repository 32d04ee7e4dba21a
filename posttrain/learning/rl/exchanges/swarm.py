"""Policies that share what they wrote as text, and learn from some of each other's."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.rl.exchanges.base import Exchange, ExchangeRound
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.learning.rl.generation import Generation
    from posttrain.learning.rl.member import Member, Shared
    from posttrain.learning.rl.rollout import Group


class Swarm(Exchange):
    """Let every policy learn from its own groups, and from groups that it takes from the others'.

    All groups are shared, as text. A policy reads what others wrote as if it had drawn it itself:
    in its own tokens, at its own log-probabilities, paid by its own reward. Of those in which
    answers are paid alike nobody takes any; of the others each policy draws `external` without
    replacement, all being equally likely.
    """

    SOURCE = "Amico et al. 2025, arXiv 2509.08721, section 3"
    METRICS: ClassVar[Mapping[str, str]] = {
        "taken": "groups of others that a policy learned from, mean over the policies",
        "offered": "groups of others that a policy could have taken, likewise",
        "taken_reward": "mean reward of the rollouts that were taken, by who took them",
    }

    kind: Literal["swarm"] = "swarm"
    external: int = Field(default=4, ge=0)
    """Most groups of others that a policy learns from in a step, beside its own."""
    local: int | None = Field(default=None, ge=0)
    """Own groups that it learns from, drawn likewise of all of its own; null for all of them."""

    def generations(self, members: "Sequence[Member]", at: ExchangeRound) -> "list[Generation]":
        """Draw, share and take; see `Exchange.generations`."""
        own = [member.generation(at.step, at.config) for member in members]
        shared = [
            each
            for member, made in zip(members, own, strict=True)
            for each in member.shared(made.groups)
        ]
        taken = [self._taken(member, shared, at) for member in members]
        _measure(at.measured, taken)
        return [
            member.learning(self._of_own(member, made, at), took)
            for member, made, (took, _) in zip(members, own, taken, strict=True)
        ]

    def _of_own(self, member: "Member", made: "Generation", at: ExchangeRound) -> "Generation":
        """The same draws, of which no more than `local` groups are learned from."""
        if self.local is None:
            return made
        chance = Random(purpose_seed(at.seed, "local", member.name))
        given = [place for place, group in enumerate(made.groups) if any(r.trained for r in group)]
        return member.only(made, chance.sample(given, min(self.local, len(given))))

    def _taken(
        self, member: "Member", shared: "Sequence[Shared]", at: ExchangeRound
    ) -> "tuple[list[Group], int]":
        """What a policy takes of others, and how many groups it could have taken."""
        offers = [each for each in shared if each.author != member.name]
        read = member.read(offers, at.step)
        telling = member.telling(read, at.config)
        chance = Random(purpose_seed(at.seed, "external", member.name))
        places = [place for place, tells in enumerate(telling) if tells]
        chosen = chance.sample(places, min(self.external, len(places)))
        return member.as_own([read[place] for place in chosen]), len(places)


def _measure(measured: dict[str, float], taken: "Sequence[tuple[list[Group], int]]") -> None:
    groups = [group for took, _ in taken for group in took]
    paid = [r.reward for group in groups for r in group if r.reward is not None]
    measured["taken"] = len(groups) / len(taken)
    measured["offered"] = sum(count for _, count in taken) / len(taken)
    if paid:
        measured["taken_reward"] = sum(paid) / len(paid)
