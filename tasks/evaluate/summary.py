"""From tallies to the report."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

import torch
from torch import Tensor

from posttrain.learning.episodes.figures import EpisodeFigures, Figure
from posttrain.learning.maths.intervals import clustered_mean_interval
from posttrain.learning.rollouts.engines.base import PlayedSample
from posttrain.learning.rollouts.strategies.base import DrawnSamples, Strategy
from posttrain.learning.rollouts.strategies.best_of_n import BestOfNStrategy
from posttrain.learning.rollouts.strategies.sample import SampleStrategy
from posttrain.learning.rollouts.strategies.vote import VoteStrategy
from posttrain.learning.rollouts.variants.base import Variant
from tasks.evaluate.collapse import warnings_of
from tasks.evaluate.config import EvaluateConfig
from tasks.evaluate.estimates import mean_of_problems
from tasks.evaluate.report import (
    LAYOUT,
    Change,
    EpisodesReport,
    Estimate,
    EstimateAt,
    Exhibit,
    PolicyReport,
    Report,
    ShownCompletion,
    ShownTurn,
    Slice,
)
from tasks.evaluate.tally import Tally


def estimates_of(
    strategy: Strategy, samples: DrawnSamples, wanted: Sequence[int]
) -> tuple[EstimateAt, ...]:
    """Grade a strategy on a policy's samples.

    Args:
        strategy: What makes one answer of several samples.
        samples: What was drawn.
        wanted: The k that the recipe asks for, rising.

    Returns:
        An estimate for each of the strategy's budgets; none where it needs a reward model and
        there is none.

    """
    if "reward_model" in strategy.NEEDS and samples.rewards_PN is None:
        return ()
    ks = strategy.budgets(samples, wanted)
    means = [mean_of_problems(strategy.solved(samples, k)) for k in ks]
    return tuple(EstimateAt(k, *astuple(mean)) for k, mean in zip(ks, means, strict=True))


SOLVED_AT = 0.5
"""Share of right samples from which a problem counts as solved."""


def summarize(
    tallies: Sequence[Tally],
    *,
    config: EvaluateConfig,
    limit: int,
    seed: int,
    reward_model: str | None,
) -> Report:
    """The whole report; each policy is compared with the one that it was trained from."""
    parents = [parent_of(tally, tallies[:place]) for place, tally in enumerate(tallies)]
    policies = tuple(
        describe(
            tally,
            parent,
            ks=sorted({1, *config.pass_at}),
            strategies=config.strategies,
            variants=config.variants,
        )
        for tally, parent in zip(tallies, parents, strict=True)
    )
    if config.environment.authors():
        policies = tuple(
            replace(each, episodes=_episodes(tally.episodes))
            for each, tally in zip(policies, tallies, strict=True)
        )
    return Report(
        layout=LAYOUT,
        seed=seed,
        num_problems=len(tallies[0].problems),
        num_samples=config.num_samples,
        temperature=config.temperature,
        max_tokens=limit,
        reward_model=reward_model,
        policies=policies,
        exhibits=exhibits(tallies, config.num_exhibits),
    )


def parent_of(tally: Tally, others: Sequence[Tally]) -> Tally | None:
    """Return the nearest of the policies that one was trained from.

    Args:
        tally: Of the policy.
        others: Of those before it in the recipe.

    Returns:
        Of a policy that does not say what it was trained from, the one before it; None where none
        of its ancestors is here.

    """
    if not tally.ancestors:
        return others[-1] if others else None
    known = {each.digest: each for each in others}
    return next((known[each] for each in reversed(tally.ancestors) if each in known), None)


def describe(
    tally: Tally,
    parent: Tally | None,
    *,
    ks: Sequence[int],
    strategies: Sequence[Strategy] = (),
    variants: Mapping[str, Variant] | None = None,
) -> PolicyReport:
    """What one policy can do, and how that differs from its parent."""
    samples = tally.drawn()
    stated = [answer is not None for given in samples.answers for answer in given]
    num_correct_P = tally.correct_PN.sum(-1)
    counts = torch.bincount(num_correct_P.long(), minlength=tally.num_samples + 1)
    (majority,) = estimates_of(VoteStrategy(), samples, ks)
    return PolicyReport(
        name=tally.name,
        digest=tally.digest,
        pass_at=estimates_of(SampleStrategy(), samples, ks),
        majority=majority,
        best_of=estimates_of(BestOfNStrategy(), samples, ks),
        mean_length=tally.mean_length(),
        truncation_rate=tally.truncation_rate(),
        format_rate=sum(stated) / len(stated),
        by_source=_slices(tally.solve_rate_P, [problem.source for problem in tally.problems]),
        by_difficulty=_slices(
            tally.solve_rate_P, [str(problem.difficulty) for problem in tally.problems]
        ),
        solve_histogram=tuple(counts.tolist()),
        change=change(tally, parent) if parent else None,
        strategies={each.kind: estimates_of(each, samples, ks) for each in strategies},
        variants={
            name: varied(tally, each, tally.varied.get(name, samples))
            for name, each in (variants or {}).items()
        },
        warnings=warnings_of(tally, parent),
    )


def varied(tally: Tally, variant: Variant, samples: DrawnSamples) -> dict[str, Estimate]:
    """Grade a variant: each figure's mean over the problems that have one, with its interval."""
    found = {}
    for name, values_P in variant.measured(samples, tally.drawn(), tally.problems).items():
        known_P = values_P[values_P.isfinite()].double()
        if len(known_P):
            mean = clustered_mean_interval(known_P, torch.arange(len(known_P)))
            found[name] = Estimate(*(float(each) for each in mean))
    return found


def change(tally: Tally, parent: Tally) -> Change:
    """The paired difference to the parent, and the problems that were won and lost."""
    difference_P = tally.solve_rate_P - parent.solve_rate_P
    now_P, before_P = tally.solve_rate_P >= SOLVED_AT, parent.solve_rate_P >= SOLVED_AT
    sources = [problem.source for problem in tally.problems]
    return Change(
        parent=parent.name,
        difference=mean_of_problems(difference_P, lowest=-1.0),
        newly_solved=_ids(tally, now_P & ~before_P),
        newly_lost=_ids(tally, before_P & ~now_P),
        by_source=_slices(difference_P, sources, lowest=-1.0),
    )


def exhibits(tallies: Sequence[Tally], count: int) -> tuple[Exhibit, ...]:
    """Problems to show: first a gain, a loss and a failure of the last policy, then in turns.

    Of each kind those come first where the solve rate moved most (or is lowest), ties by id.
    """
    first, last = tallies[0].solve_rate_P, tallies[-1].solve_rate_P
    moved = (last - first).tolist()
    ids = [problem.id for problem in tallies[-1].problems]
    places = range(len(ids))
    gains = sorted(places, key=lambda place: (-moved[place], ids[place]))
    losses = sorted(places, key=lambda place: (moved[place], ids[place]))
    failures = sorted(places, key=lambda place: (float(last[place]), ids[place]))
    turns = [place for three in zip(gains, losses, failures, strict=True) for place in three]
    return tuple(_exhibit(tallies, place) for place in list(dict.fromkeys(turns))[:count])


def _exhibit(tallies: Sequence[Tally], place: int) -> Exhibit:
    problem = tallies[0].problems[place]
    shown = []
    for tally in tallies:
        made = tally.samples[place][0]
        shown.append(
            ShownCompletion(
                policy=tally.name,
                text=made.sample.text,
                score=made.score.value or 0.0,
                reason=made.score.reason,
                solve_rate=float(tally.solve_rate_P[place]),
                turns=_turns(made.sample.played),
                end=made.sample.played.end if made.sample.played else "",
            )
        )
    return Exhibit(
        problem_id=problem.id,
        source=problem.source,
        difficulty=problem.difficulty,
        prompt=problem.prompt,
        answer=problem.answer,
        completions=tuple(shown),
    )


def _turns(played: PlayedSample | None) -> tuple[ShownTurn, ...]:
    """The messages of an episode, those of the policy with what they earned."""
    if played is None:
        return ()
    earned, keys = iter(played.earned), iter(played.keys)
    return tuple(
        ShownTurn(author, text, next(earned, 0.0), next(keys, ""))
        if author == "assistant"
        else ShownTurn(author, text, None, "")
        for author, text in played.said
    )


def _episodes(figures: EpisodeFigures) -> EpisodesReport:
    """Write the figures of a policy's episodes as the report has them."""

    def each_of(named: Mapping[str, Figure]) -> dict[str, Estimate]:
        return {name: Estimate(*figure) for name, figure in named.items()}

    return EpisodesReport(
        score=Estimate(*figures.score) if figures.score else None,
        turns=Estimate(*figures.turns),
        tokens_drawn=Estimate(*figures.tokens_drawn),
        tokens_read=Estimate(*figures.tokens_read),
        facts=each_of(figures.facts),
        ends=each_of(figures.ends),
    )


def _slices(values_P: Tensor, names: Sequence[str], *, lowest: float = 0.0) -> tuple[Slice, ...]:
    """The mean within each name, by name (numbers by value)."""
    members: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        members.setdefault(name, []).append(place)
    ordered = sorted(members, key=lambda name: (len(name) if name.isdigit() else 0, name))
    return tuple(
        Slice(name, len(of), mean_of_problems(values_P[of], lowest=lowest, few=True))
        for name, of in ((name, members[name]) for name in ordered)
    )


def _ids(tally: Tally, chosen_P: Tensor) -> tuple[str, ...]:
    chosen = chosen_P.tolist()
    return tuple(
        sorted(problem.id for problem, hit in zip(tally.problems, chosen, strict=True) if hit)
    )
