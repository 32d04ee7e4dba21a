"""From a sampler's config to one that draws."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from posttrain.data.schemas import PROBLEMS, SOLVE_RATES
from posttrain.data.tables import read_table
from posttrain.learning.curriculum.base import ProblemPool, ProblemSampler, ProblemStream
from posttrain.learning.curriculum.sources import SourceShares
from posttrain.stage.errors import UserError, nearest


def read_pool(problems: Path, solve_rates: Path | None, *, policy: str) -> ProblemPool:
    """Read what a problem sampler is started with.

    Args:
        problems: A PROBLEMS table.
        solve_rates: A SOLVE_RATES table, where one is connected.
        policy: Digest of the policy that training starts from.

    Returns:
        The pool.

    """
    return ProblemPool(
        problems=read_table(problems, PROBLEMS),
        solve_rates=None if solve_rates is None else read_table(solve_rates, SOLVE_RATES),
        policy=policy,
        where=str(solve_rates or problems),
    )


def start_sampler(
    sampler: ProblemSampler,
    pool: ProblemPool,
    *,
    count: int,
    sources: Mapping[str, float] | None = None,
) -> ProblemStream:
    """Start a problem sampler, once the pool has what it needs.

    Args:
        sampler: The part to start.
        pool: Problems, and what is known of them.
        count: Problems per step.
        sources: Weight of every source; none leaves the sources to the sampler.

    Returns:
        A stream of problems, with its state.

    Raises:
        UserError: There are fewer problems than one step draws, the sampler needs solve rates and
            none are connected, or the shares cannot be given.

    """
    problems = pool.problems
    if len(problems) < count:
        raise UserError(
            f"{pool.where}: there are {len(problems)} problems, but every step draws {count}"
            " different ones; lower problems_per_step or add problems"
        )
    if "solve_rates" in sampler.NEEDS and pool.solve_rates is None:
        raise UserError(
            f"rl.draw.sampler: {sampler.kind} begins from solve rates, and none are connected;"
            " connect a probe's, or set sampler to uniform"
        )
    stream = sampler.start(pool)
    if not sources:
        return stream
    return _share_sources(stream, sources, problems["source"].to_list(), count=count)


def _share_sources(
    stream: ProblemStream, shares: Mapping[str, float], sources: Sequence[str], *, count: int
) -> SourceShares:
    """Check the shares against what there is, and let the sources take turns."""
    available = Counter(sources)
    for name, share in shares.items():
        if name not in available:
            raise UserError(
                f"rl.draw.sources: no problem has the source '{name}'{nearest(name, available)}"
            )
        wanted = math.ceil(share / sum(shares.values()) * count)
        if wanted > available[name]:
            raise UserError(
                f"rl.draw.sources: the share of '{name}' is {wanted} problems per step, but there"
                f" are {available[name]}; lower its share or problems_per_step"
            )
    return SourceShares(stream, shares, sources)
