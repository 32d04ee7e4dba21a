"""All rollouts of one step, with the numbers that they were drawn with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.config_checks import check_algorithm
from posttrain.learning.rl.rollout import Group, from_plain, marked, own, plain
from posttrain.learning.rollouts.limits import tokens_for
from posttrain.stage.errors import UserError
from posttrain.stage.schedule import ScheduledNumber, at

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Config = TypeVar("Config", bound=RlConfig)

# What the engine drew by; a schedule may have moved on when the rollouts are learned from.
_OF_THE_DRAW = ("temperature", "max_tokens", "group_size")


@dataclass
class Generation:
    """All rollouts that were drawn for one 0-based step, with facts of their sampling."""

    step: int
    groups: list[Group]
    facts: dict[str, float] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    """Numbers of the config that the learner must use as they were drawn with."""

    def drawn_with(self, config: RlConfig) -> RlConfig:
        """Return the config of a later step, with the numbers that the rollouts were drawn with.

        Log-probabilities are those of the engine only at its own temperature.

        Args:
            config: Of the later step.

        Returns:
            The same config where the numbers are the same.

        """
        changed = {n: v for n, v in self.numbers.items() if getattr(config, n) != v}
        return config.model_copy(update=changed) if changed else config

    @property
    def own(self) -> list[Group]:
        """The groups with what the policy drew in them alone."""
        return own(self.groups)

    @property
    def was_carried(self) -> bool:
        """True where several policies drew a rollout."""
        return any(rollout.token_versions for group in self.groups for rollout in group)

    def untrained(self) -> list[Group]:
        """Return the groups, none of them learned from: the run ended before."""
        return [marked(group, trained=False) for group in self.groups]

    def state_dict(self) -> dict[str, Any]:
        """Return plain values by name."""
        return {
            "step": self.step,
            "rollouts": plain(self.groups),
            "facts": dict(self.facts),
            "numbers": dict(self.numbers),
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "Generation":
        """Return the generation that `state_dict` gave."""
        facts, numbers = dict(state["facts"]), dict(state["numbers"])
        return cls(int(state["step"]), from_plain(state["rollouts"]), facts, numbers)


def numbers_of_the_draw(config: RlConfig) -> dict[str, float]:
    """Return the numbers of a step's config, schedules applied, that its rollouts depend on."""
    return {name: getattr(config, name) for name in _OF_THE_DRAW}


def with_limit(config: Config, model: "PreTrainedModel", *, note: Callable[[str], None]) -> Config:
    """Return the config of a run whose policy is known.

    Args:
        config: Of the run.
        model: The policy as the run begins.
        note: Takes a sentence: why this number, or what a given one cuts.

    Returns:
        A config whose `limit` is a number.

    Raises:
        UserError: The algorithm cannot be carried out with it.

    """
    if isinstance(config.max_tokens, ScheduledNumber):
        return config
    limit = tokens_for(config.max_tokens, model, note=note)
    limited = config.model_copy(update={"max_tokens": limit})
    first = at(limited, 0, {})
    try:
        check_algorithm(
            first.algorithm,
            first.reward,
            group_size=first.draw.select.learned(first.group_size),
            max_tokens=first.producer.longest(limit),
            updates_per_step=first.updates_per_step,
            oldest=first.oldest,
            gives=first.producer.GIVES,
        )
    except ValueError as error:
        raise UserError(f"rl: {error}") from None
    return limited
