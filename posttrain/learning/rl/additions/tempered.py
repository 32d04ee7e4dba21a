"""Right answers drawn warmer or colder than the policy is, by how undecided it has become."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.rl.additions.base import (
    Added,
    Addition,
    AdditionAtWork,
    AdditionBench,
    Joining,
)

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.rl.producers.base import SamplingRound
    from posttrain.learning.rl.rollout import Group


class Tempered(Addition):
    """Draw a second time at another temperature, and let what is right of it join its group.

    The entropy of a step is the mean of -log p over the tokens of its groups that are learned from.
    At most `target`, the second draw is at `high`, which leads to more entropy where it is learned
    from (`algorithm.foreign: cloned`); above it is at `low`, and of half as many groups.
    """

    SOURCE = (
        "AEPO, arXiv 2510.08141; 597358816/AEPO at b353a05, verl/trainer/ray_trainer.py (fit),"
        " verl/trainer/config.py"
    )

    kind: Literal["tempered"] = "tempered"
    target: float = Field(default=0.5, ge=0.0)
    """Entropy that is held, in nats per token."""
    high: float = Field(default=1.2, gt=0.0)
    """Temperature of the second draw where the entropy is too low."""
    low: float = Field(default=0.8, gt=0.0)
    """Where it is too high."""
    share: float = Field(default=0.25, gt=0.0, le=1.0)
    """Of the groups that are learned from, the first: so many are drawn for again, rounded up."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low {self.low} is not below high {self.high}; exchange them")
        return self

    def start(self, bench: AdditionBench) -> AdditionAtWork:
        """Begin a run; see `Addition.start`."""
        return TemperedAtWork(self, bench)


class TemperedAtWork(AdditionAtWork):
    """Draws again for the first groups of a step."""

    def __init__(self, config: Tempered, bench: AdditionBench) -> None:
        self._config, self._bench = config, bench

    def join(
        self, groups: "Sequence[Group]", problems: "Sequence[Problem]", at: "SamplingRound"
    ) -> Sequence[Joining]:
        """Measure the entropy, draw, and let the right ones join; see `AdditionAtWork.join`."""
        from posttrain.learning.rollouts.engines.base import FinishReason, Prompt

        config = self._config
        logprobs = [each for group in groups for row in group for each in row.logprobs]
        below = -sum(logprobs) <= config.target * len(logprobs)
        share = config.share if below else config.share / 2
        chosen = range(ceil(share * len(groups)))
        prompts = [
            Prompt(f"{problems[place].id}/tempered", row.token_ids[: row.spans[0].end])
            for place in chosen
            for row in groups[place][:1]
        ]
        params = replace(at.params, temperature=config.high if below else config.low)
        drawn = iter(self._bench.work.engine.sample(prompts, params))
        added: list[list[Added]] = [[] for _ in groups]
        for place in chosen:
            for sample in islice(drawn, params.num_samples):
                # One that was cut off would be taught to end where it was.
                if sample.finish_reason == FinishReason.STOP:
                    added[place].append(Added(sample.text, "tempered"))
        return [Joining(each, above=0.0) for each in added]
