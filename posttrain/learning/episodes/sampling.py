"""Sampling through an environment: what stages that attempt problems share with RL."""

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

from posttrain.learning.episodes.config import PlayConfig, Seats
from posttrain.learning.episodes.environments.base import POLICY
from posttrain.learning.episodes.players.base import PORT, PlayBench
from posttrain.learning.rollouts.sampling import SamplingConfig
from posttrain.stage.spec import under_port
from posttrain.stage.steady import SteadyFields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.episode import Episode
    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import (
        PlayedSample,
        Prompt,
        RolloutEngine,
        Sample,
        SamplingParams,
    )
    from posttrain.stage.resources import RayResources


class EpisodeSamplingConfig(SamplingConfig, PlayConfig, SteadyFields):
    """How answers are sampled, and what answers them before they are done."""

    STEADY: ClassVar[frozenset[str]] = frozenset({"environment"})


@dataclass(frozen=True)
class PlayingEngine:
    """An engine whose samples are episodes: their texts, a line a turn, and the tokens drawn."""

    engine: "RolloutEngine"
    """Draws what the policy says."""
    config: PlayConfig
    problems: "Mapping[str, Problem]"
    """What the prompts are about, by their ids."""
    seats: Seats

    @property
    def context_length(self) -> int:
        """Most tokens of an episode, all turns together."""
        return self.engine.context_length

    def update(self, policy_version: int) -> None:
        """Take over the policy's present weights; see `RolloutEngine.update`."""
        self.engine.update(policy_version)

    def sample(self, prompts: "Sequence[Prompt]", params: "SamplingParams") -> "list[Sample]":
        """Play `params.num_samples` episodes of every prompt; see `RolloutEngine.sample`."""
        from posttrain.learning.episodes.play import play

        groups = play(
            self.config.environment,
            [self.problems[prompt.id] for prompt in prompts],
            prompts,
            self.seats.speakers(params),
            seed=params.seed,
            most_turns=self.config.most_turns,
            most_seconds=self.config.most_seconds,
        )
        return [
            _as_sample(episode, prompt.id, index)
            for prompt, group in zip(prompts, groups, strict=True)
            for index, episode in enumerate(group)
        ]


@contextmanager
def open_playing(
    config: EpisodeSamplingConfig,
    policy: "Policy",
    problems: "Sequence[Problem]",
    *,
    ray: "RayResources | None" = None,
    inputs: "Mapping[str, Path] | None" = None,
    device: str = "cpu",
) -> "Iterator[PlayingEngine]":
    """Open the engine of a stage whose samples are episodes, for as long as the context lasts.

    Args:
        config: Names engine and environment.
        policy: What is drawn from.
        problems: All that will be asked for.
        ray: A cluster, whose actors then have an engine each.
        inputs: Of the stage by port: `players` brings checkpoints that play further roles.
        device: Where their weights go, as torch names it.

    Yields:
        What is sampled from.

    Raises:
        UserError: The engine cannot be had; the policy's template does not keep earlier turns as
            they were drawn.

    """
    from posttrain.learning.episodes.append import refuse_rewriting
    from posttrain.learning.rollouts.engines.config import open_engine

    refuse_rewriting(policy.tokenizer, config.environment.authors())
    known = {problem.id: problem for problem in problems}
    with open_engine(config.engine, policy, batch_size=config.batch_size, ray=ray) as engine:
        seats = config.seated(
            PlayBench(engine, policy.tokenizer, policy, device, under_port(PORT, inputs or {}))
        )
        # Whoever plays as an earlier policy has but one to be.
        seats.begin(0)
        yield PlayingEngine(engine, config, known, seats)


def _as_sample(episode: "Episode", prompt: str, index: int) -> "Sample":
    from posttrain.learning.rollouts.engines.base import FinishReason, Sample

    segments = episode.of(POLICY)
    drawn = [
        token
        for segment in segments
        for span in segment.spans
        if span.drawn
        for token in segment.token_ids[span.begin : span.end]
    ]
    reasons = {
        "over": FinishReason.STOP,
        "failed": FinishReason.FAILED,
        "time": FinishReason.FAILED,
    }
    return Sample(
        prompt_id=prompt,
        index=index,
        token_ids=tuple(drawn),
        logprobs=tuple(value for segment in segments for value in segment.logprobs),
        text=episode.text(POLICY),
        finish_reason=reasons.get(episode.end, FinishReason.LENGTH),
        policy_version=min(chain.from_iterable(each.versions for each in segments), default=0),
        played=None if episode.is_one_answer else _played(episode),
    )


def _played(episode: "Episode") -> "PlayedSample":
    from posttrain.learning.rollouts.engines.base import PlayedSample

    said = tuple((told.author, told.text) for told in episode.said(POLICY))
    read = [
        span.end - span.begin
        for segment in episode.segments
        for span in segment.spans
        if segment.role == POLICY and not span.drawn
    ]
    return PlayedSample(
        said,
        episode.earned(POLICY),
        episode.facts(),
        episode.read,
        episode.end,
        sum(read[1:]),
        episode.keys(POLICY),
    )
