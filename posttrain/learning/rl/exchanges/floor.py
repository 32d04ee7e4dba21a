"""All that is said in a step of a discussion: who is asked what, and what each is paid for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from posttrain.learning.rl.exchanges.base import ExchangeRound, can_be_judged
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.learning.rl.member import Member
    from posttrain.learning.rl.rollout import Group, Rollout
    from posttrain.learning.rl.rollouter import Draft


class Utterance(NamedTuple):
    """A row of a discussion, with who wrote it of what."""

    problem: int
    """Place of the problem in the step."""
    author: int
    """Place of the policy."""
    row: "Rollout"


@dataclass
class Floor:
    """One step of a discussion: asks policies, and keeps what each of them learns from."""

    members: "Sequence[Member]"
    """Those that are asked, in the order of the policies."""
    draft: "Draft"
    """The problems of the step, which are the same for all."""
    at: ExchangeRound
    """The step."""
    kept: list[Utterance] = field(default_factory=list)
    """All rows that are learned from, with what they were paid."""
    scored: list[tuple[float | None, bool | None]] = field(default_factory=list)
    """Of each solution what it was paid, and whether it is right."""
    num_asked: int = 0
    """Texts that were to be read, so far."""
    num_unread: int = 0
    """Those of them that left no room, so that the problem was read alone."""

    def solved(self, texts: Sequence[str] | None, name: str) -> list[Utterance]:
        """Let every policy solve every problem, `group_size` times, and judge what it wrote.

        Args:
            texts: What is read in place of each problem; None to read the problems as they are.
            name: What the solutions are, in roles and draws.

        Returns:
            All solutions, problem by problem and in each by their policies.

        """
        wrote = []
        for member in self.members:
            if texts is None:
                groups = member.answers(self.draft)
            else:
                asks = [[text] * self.at.config.group_size for text in texts]
                groups = self._replies(member, asks, name)
            wrote.append(member.rewarded(groups, step=self.at.step))
        # In the first round it is the problem as it is that is answered.
        prefix = "" if texts is None else f"{name}:"
        return [
            Utterance(place, author, row._replace(role=prefix + row.role, peers=name))
            for place in range(len(self.draft.problems))
            for author, groups in enumerate(wrote)
            for row in groups[place]
        ]

    def asked(self, of: Sequence[Utterance], asks: Sequence[str], name: str) -> list[Utterance]:
        """Ask about each of some solutions a policy that is drawn for it, all equally often.

        Args:
            of: The solutions, problem by problem.
            asks: What is read about each.
            name: What the answers are, in roles and draws.

        Returns:
            The answers in the order of the solutions; what the reward says of answers to a problem
            is asked of none of them.

        """
        who = [place % len(self.members) for place in range(len(of))]
        Random(purpose_seed(self.at.seed, name)).shuffle(who)
        found: dict[int, Rollout] = {}
        for author, member in enumerate(self.members):
            own = [place for place, each in enumerate(who) if each == author]
            texts = [
                [asks[place] for place in own if of[place].problem == problem]
                for problem in range(len(self.draft.problems))
            ]
            rows = chain.from_iterable(self._replies(member, texts, name))
            found |= zip(own, rows, strict=True)
        return [
            Utterance(each.problem, author, self._judged(found[place], name))
            for place, (each, author) in enumerate(zip(of, who, strict=True))
        ]

    def keep(self, said: Utterance, pay: float) -> None:
        """Keep a row for its policy; what cannot be judged stays so.

        Args:
            said: The row.
            pay: What it earns.

        """
        if said.row.reward is not None:
            said = said._replace(row=said.row._replace(reward=pay, token_rewards=()))
        self.kept.append(said)

    def groups(self, author: int) -> "list[Group]":
        """All that a policy wrote, by problem."""
        own = [each for each in self.kept if each.author == author]
        return [
            [each.row for each in own if each.problem == problem]
            for problem in range(len(self.draft.problems))
        ]

    def measured(self) -> dict[str, float]:
        """Measure what was said so far, by the names in the exchange's `METRICS`."""
        scored = [(score, right) for score, right in self.scored if score is not None]
        means = {
            "score": [score for score, _ in scored],
            "score_right": [score for score, right in scored if right],
            "score_wrong": [score for score, right in scored if right is False],
        }
        return {
            **{name: fmean(scores) for name, scores in means.items() if scores},
            "unscored": 1.0 - len(scored) / len(self.scored),
            "unread": self.num_unread / self.num_asked,
        }

    def _replies(
        self, member: "Member", texts: Sequence[Sequence[str]], name: str
    ) -> "list[Group]":
        groups, unread = member.replies(self.draft, texts, purpose=name)
        self.num_asked += sum(map(len, texts))
        self.num_unread += unread
        return groups

    def _judged(self, row: "Rollout", name: str) -> "Rollout":
        """As the reward would have it, which is of answers to the problem alone."""
        reward = 0.0 if can_be_judged(row, self.at.config.reward) else None
        return row._replace(role=f"{name}:{row.role}", peers=name, reward=reward)
