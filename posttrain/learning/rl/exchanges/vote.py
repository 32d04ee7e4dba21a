"""Policies that answer the same problems, and are paid for agreeing with what all of them vote."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.rewards.verify import stated_answers
from posttrain.learning.rl.exchanges.base import Exchange, ExchangeRound

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.rl.generation import Generation
    from posttrain.learning.rl.member import Member
    from posttrain.learning.rl.rollout import Group

Ballot = Sequence[str | None]
"""What the answers of one policy to a problem state; None where one states nothing."""


class Vote(Exchange):
    """Pay an answer 1 for stating what all policies elect, else 0; no label is looked at.

    All answer the problems that the first one's sampler draws. What the reward's components say is
    kept with each answer, and learned from by none; what could not be judged stays so.
    """

    SOURCE = "Yuan et al. 2025, arXiv 2508.12338"
    METRICS: ClassVar[Mapping[str, str]] = {
        "self_consistency": "how often a policy states what it states most, mean over all problems",
        "collective_consistency": "share of all policies' answers that state what was elected",
        "elected_right": "share of problems with an elected answer that the reward calls right",
    }

    kind: Literal["vote"] = "vote"
    weighted: bool = True
    """Weigh a policy's votes by its self-consistency; false counts every answer alike."""

    def generations(self, members: "Sequence[Member]", at: ExchangeRound) -> "list[Generation]":
        """Let all answer, vote and be paid; see `Exchange.generations`."""
        draft = members[0].draft(at.step, at.config)
        wrote = [member.rewarded(member.answers(draft), step=at.step) for member in members]
        said = [_said(groups, draft.problems) for groups in wrote]
        chosen = [elected(ballots, weighted=self.weighted) for ballots in zip(*said, strict=True)]
        _measure(at.measured, wrote, said, chosen)
        return [
            member.of_step(_paid(groups, ballots, chosen), at.step, at.config)
            for member, groups, ballots in zip(members, wrote, said, strict=True)
        ]


def self_consistency(ballot: Ballot) -> float:
    """Share of the answers that state what most of them state; 0 where none states anything."""
    counted = Counter(each for each in ballot if each is not None)
    return max(counted.values(), default=0) / len(ballot)


def elected(ballots: Sequence[Ballot], *, weighted: bool) -> str | None:
    """Elect one answer to a problem.

    Args:
        ballots: Of each policy, at least one answer each.
        weighted: Count an answer as much as its policy's self-consistency, not as 1.

    Returns:
        The answer of the largest sum; of equal ones that which was met first, in the order of the
        policies and of their draws. None where nobody states an answer.

    """
    votes: dict[str, float] = {}
    for ballot in ballots:
        weight = self_consistency(ballot) if weighted else 1.0
        for each, count in Counter(each for each in ballot if each is not None).items():
            votes[each] = votes.get(each, 0.0) + weight * count
    return max(votes, key=votes.__getitem__, default=None)


def _said(groups: "Sequence[Group]", problems: "Sequence[Problem]") -> list[Ballot]:
    return [
        stated_answers([row.text for row in group], problem)
        for group, problem in zip(groups, problems, strict=True)
    ]


def _paid(
    groups: "Sequence[Group]", ballots: Sequence[Ballot], chosen: Sequence[str | None]
) -> "list[Group]":
    """Pay for the vote alone; an answer that states nothing agrees with nobody."""
    return [
        [
            row
            if row.reward is None
            else row._replace(reward=float(said is not None and said == won), token_rewards=())
            for row, said in zip(group, ballot, strict=True)
        ]
        for group, ballot, won in zip(groups, ballots, chosen, strict=True)
    ]


def _measure(
    measured: dict[str, float],
    wrote: "Sequence[Sequence[Group]]",
    said: Sequence[Sequence[Ballot]],
    chosen: Sequence[str | None],
) -> None:
    cast = [
        (place, row.solved, answer)
        for groups, ballots in zip(wrote, said, strict=True)
        for place, (group, ballot) in enumerate(zip(groups, ballots, strict=True))
        for row, answer in zip(group, ballot, strict=True)
    ]
    agreed = [each for each in cast if each[2] is not None and each[2] == chosen[each[0]]]
    measured["self_consistency"] = fmean(
        self_consistency(ballot) for ballots in said for ballot in ballots
    )
    measured["collective_consistency"] = len(agreed) / len(cast)
    if voted := {place for place, _, _ in agreed}:
        right = {place for place, solved, _ in agreed if solved}
        measured["elected_right"] = len(right) / len(voted)
