"""Figures of many episodes: what they earned, their length, what was counted, how they ended."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from posttrain.learning.maths.intervals import bounded_mean_interval, clustered_mean_interval
from posttrain.learning.rollouts.engines.base import FinishReason, PlayedSample, Sample
from posttrain.learning.rollouts.scoring import ScoredSample

_ENDS = {FinishReason.STOP: "over", FinishReason.LENGTH: "tokens", FinishReason.FAILED: "failed"}


class Figure(NamedTuple):
    """A mean, and the ends of its 95% interval, in which a problem's episodes go together."""

    value: float
    low: float
    high: float


class EpisodeFigures(NamedTuple):
    """Means over episodes, those among them that could not be judged."""

    score: Figure | None
    """Of those that could be judged; None where none could."""
    turns: Figure
    """Of the policy."""
    tokens_drawn: Figure
    tokens_read: Figure
    """Behind the prompt."""
    facts: Mapping[str, Figure]
    """What the environment counted, such as `tool_errors`, by name."""
    ends: Mapping[str, Figure]
    """Share that ended so: over, turns, tokens, time, failed."""

    def named(self) -> Iterator[tuple[str, float]]:
        """Give every mean with its name, as metrics have it."""
        if self.score is not None:
            yield "score", self.score.value
        yield "turns", self.turns.value
        yield "tokens_read", self.tokens_read.value
        yield from ((name, figure.value) for name, figure in self.facts.items())
        yield from ((f"ended_{end}", share.value) for end, share in self.ends.items())


def figures_of(scored: Sequence[ScoredSample]) -> EpisodeFigures:
    """Sum up what was played.

    Args:
        scored: Episodes with their scores, at least one. One answer that nothing answered is an
            episode of one turn.

    Returns:
        Their means.

    """
    played = [_as_played(made.sample) for made in scored]
    place: dict[str, int] = {}
    clusters = [place.setdefault(made.problem.id, len(place)) for made in scored]

    def mean(value: Callable[[PlayedSample], float]) -> Figure:
        return _figure([value(each) for each in played], clusters)

    judged = [
        (made.score.value, cluster)
        for made, cluster in zip(scored, clusters, strict=True)
        if made.score.value is not None
    ]
    names = dict.fromkeys(name for each in played for name in each.facts)
    ends = dict.fromkeys(each.end for each in played)
    return EpisodeFigures(
        score=_figure(*zip(*judged, strict=True), bounded=True) if judged else None,
        turns=mean(lambda each: max(1, len(each.earned))),
        tokens_drawn=_figure([len(made.sample.token_ids) for made in scored], clusters),
        tokens_read=mean(lambda each: each.tokens_read),
        facts={
            name: _figure([each.facts.get(name, 0.0) for each in played], clusters)
            for name in names
        },
        ends={
            end: _figure([float(each.end == end) for each in played], clusters, bounded=True)
            for end in sorted(ends)
        },
    )


def _as_played(sample: Sample) -> PlayedSample:
    """The episode that a sample is, also where nothing answered it."""
    if sample.played is not None:
        return sample.played
    said = (("assistant", sample.text),)
    return PlayedSample(said, (0.0,), {}, end=_ENDS[sample.finish_reason])


def _figure(values: Sequence[float], clusters: Sequence[int], *, bounded: bool = False) -> Figure:
    """The mean; a share that is the same everywhere has the width of Wilson's interval."""
    interval_of = bounded_mean_interval if bounded else clustered_mean_interval
    return Figure(*map(float, interval_of(torch.tensor(values), torch.tensor(clusters))))
