"""An adversary writes what is read before each problem, and grows rational as it is withstood."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.backends.endpoint.config import filled
from posttrain.learning.rl.exchanges.base import Exchange, ExchangeRound, can_be_judged

if TYPE_CHECKING:
    from posttrain.learning.rewards.config import RewardStack
    from posttrain.learning.rl.generation import Generation
    from posttrain.learning.rl.member import Member
    from posttrain.learning.rl.rollout import Rollout

_TEMPERATURE = "temperature"


class Adversary(Exchange):
    """Let the second policy write what the first one reads before a problem, and pay it against it.

    The first is paid its reward, the second what the first one lost of it, and, at a temperature,
    its own entropy: the hotter, the closer to chance it plays, which is a quantal response. The
    temperature falls after each step in which the first policy earned enough. Nobody answers a
    problem alone, so that a problem sampler learns nothing, and one that would is refused.
    """

    SOURCE = (
        "Reddi et al. 2024, arXiv 2311.01642; AryamanReddi99/quantal-adversarial-rl at aae57b7,"
        " self_paced_gamma_teacher_fixed_beta.py"
    )
    METRICS: ClassVar[Mapping[str, str]] = {
        "temperature": "what a nat of the adversary's entropy is paid",
        "withstood": "mean reward of the first policy after it read what the adversary wrote",
        "adversary_entropy": "mean of -log p of what the adversary wrote, in nats per token",
        "unread": "share of its texts that left no room, and the problem was read alone",
    }
    LEAST: ClassVar[int] = 2
    MOST: ClassVar[int] = 2
    HEARD: ClassVar[bool] = False
    FIXED: ClassVar[frozenset[str]] = frozenset({"policies", "hottest"})

    kind: Literal["adversary"] = "adversary"
    hottest: float = Field(default=0.5, ge=0.0)
    """Temperature of the first step, in reward for each nat of entropy of a token."""
    coldest: float = Field(default=0.0, ge=0.0)
    """Temperature of the rational adversary, to which it falls."""
    falls: float = Field(default=0.05, gt=0.0)
    """What it falls by after a step in which enough was earned."""
    enough: float = 0.0
    """Mean reward of the first policy from which on it falls."""
    template: str = "{text}\n{prompt}"
    """What the first policy reads of the adversary's text and the problem."""

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        for part in ("{text}", "{prompt}"):
            if part not in self.template:
                raise ValueError(f"template has no {part}, which is to be read; write it there")
        if self.coldest > self.hottest:
            raise ValueError(
                f"coldest is {self.coldest:g}, above hottest, {self.hottest:g}, and the temperature"
                " falls; lower it"
            )
        return self

    def generations(self, members: "Sequence[Member]", at: ExchangeRound) -> "list[Generation]":
        """Let the adversary write, then the first answer; see `Exchange.generations`."""
        first, adversary = members
        temperature = at.state.get(_TEMPERATURE, self.hottest)
        draft = first.draft(at.step, at.config)
        texts = adversary.answers(draft)
        read = [
            [filled(self.template, text=row.text, prompt=problem.prompt) for row in group]
            for problem, group in zip(draft.problems, texts, strict=True)
        ]
        replies, unread = first.replies(draft, read, purpose="withstanding")
        replies = first.rewarded(replies, step=at.step)
        attacks = [
            [
                paid_attack(row, reply, temperature, at.config.reward)
                for row, reply in zip(group, answers, strict=True)
            ]
            for group, answers in zip(texts, replies, strict=True)
        ]
        answers = [
            [row._replace(role=f"attacked:{row.role}") for row in group] for group in replies
        ]
        self._measure(at, temperature, [row for group in texts for row in group])
        at.measured["unread"] = unread / sum(map(len, read))
        if earned := [row.reward for group in replies for row in group if row.reward is not None]:
            at.measured["withstood"] = fmean(earned)
            at.state[_TEMPERATURE] = self.cooled(temperature, fmean(earned))
        return [
            first.of_step(answers, at.step, at.config),
            adversary.of_step(attacks, at.step, at.config),
        ]

    def cooled(self, temperature: float, earned: float) -> float:
        """Say what the temperature is after a step.

        Args:
            temperature: Of the step.
            earned: Mean reward of the first policy in it.

        Returns:
            Less where that was enough, and never less than that of a rational adversary.

        """
        if earned < self.enough:
            return temperature
        return max(self.coldest, temperature - self.falls)

    def _measure(self, at: ExchangeRound, temperature: float, texts: "Sequence[Rollout]") -> None:
        at.measured[_TEMPERATURE] = temperature
        spoken = [entropy_of(row) for row in texts if row.logprobs]
        at.measured["adversary_entropy"] = fmean(spoken) if spoken else 0.0


def entropy_of(row: "Rollout") -> float:
    """Estimate the entropy of what drew a rollout, in nats per token: the mean of -log p."""
    return -fmean(row.logprobs)


def paid_attack(
    row: "Rollout", reply: "Rollout", temperature: float, reward: "RewardStack"
) -> "Rollout":
    """Pay the adversary for a text: less what the first policy earned, and for the entropy.

    Args:
        row: What the adversary wrote.
        reply: What the first policy answered, with what it earned.
        temperature: What a nat per token is paid.
        reward: Of the step.

    Returns:
        The text in its role; nothing is paid where it or the reply could not be judged.

    """
    paid = None
    if reply.reward is not None and can_be_judged(row, reward):
        paid = temperature * entropy_of(row) - reply.reward
    return row._replace(role=f"adversary:{row.role}", reward=paid)
