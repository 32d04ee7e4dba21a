"""The filters of this stage, in the order in which they are applied."""

from functools import partial

import polars as pl

from posttrain.data.filters.contamination import contamination
from posttrain.data.filters.dedup import exact_duplicates, near_duplicates
from posttrain.data.filters.difficulty import bucket_size, difficulty_range
from posttrain.data.filters.length import length
from posttrain.data.filters.sieve import Filter, judge
from posttrain.data.filters.spread import HERE, Spread
from tasks.curate.config import CurateConfig


def problem_filters(
    config: CurateConfig, heldout: pl.DataFrame, *, spread: Spread = HERE
) -> dict[str, Filter]:
    """Filters of problems; `spread` shares out the work of the expensive ones.

    Leaks go before near duplicates, so that a leak does not take its innocent neighbours along.
    """
    filters: dict[str, Filter] = {
        "prompt_chars": partial(length, column="prompt", bounds=config.prompt_chars),
        "answer": partial(length, column="answer", bounds=(1, _NO_LIMIT)),
    }
    if config.difficulty_range:
        filters["difficulty_range"] = partial(difficulty_range, bounds=config.difficulty_range)
    if config.exact_duplicates:
        filters["exact_duplicates"] = partial(exact_duplicates, texts=("prompt",))
    filters["contamination"] = partial(
        contamination,
        heldout=heldout,
        ngram=config.contamination_ngram,
        boilerplate=config.contamination_boilerplate,
        spread=spread,
    )
    if config.near_duplicate_similarity:
        filters["near_duplicates"] = partial(
            near_duplicates,
            similarity=config.near_duplicate_similarity,
            shingle=config.near_duplicate_shingle,
            spread=spread,
        )
    if config.max_per_bucket:
        filters["max_per_bucket"] = partial(
            bucket_size, edges=config.difficulty_edges, most=config.max_per_bucket
        )
    return filters


def trace_filters(
    config: CurateConfig, problems: pl.DataFrame, dropped: pl.DataFrame
) -> dict[str, Filter]:
    """Filters of solutions, given which problems stay and which go."""
    filters: dict[str, Filter] = {
        "problem": partial(of_a_dropped_problem, problems=problems, dropped=dropped)
    }
    if config.require_verified:
        filters["verified"] = unverified
    filters["trace_chars"] = partial(length, column="text", bounds=config.trace_chars)
    filters["duplicates"] = partial(exact_duplicates, texts=("problem_id", "text"))
    if config.max_traces_per_problem:
        filters["max_traces_per_problem"] = partial(
            beyond_per_problem, most=config.max_traces_per_problem
        )
    return filters


def of_a_dropped_problem(
    traces: pl.DataFrame, problems: pl.DataFrame, dropped: pl.DataFrame
) -> pl.DataFrame:
    """Judge traces whose problem does not stay: "problem_" and its reason, or "unknown_problem".

    Of a problem that was there several times, the copy that came furthest counts.
    """
    fates = pl.concat(
        [
            dropped.select("id", ("problem_" + pl.col("reason")).alias("fate")),
            problems.select("id", pl.lit("").alias("fate")),
        ]
    ).unique("id", keep="last", maintain_order=True)
    judged = traces.join(
        fates, left_on="problem_id", right_on="id", how="left", maintain_order="left"
    )
    return judge(judged, pl.col("fate").fill_null("unknown_problem"))


def unverified(traces: pl.DataFrame) -> pl.DataFrame:
    """Judge traces that no verifier accepted, by the verifier's reason where it gave one."""
    told = ~pl.col("reason").is_in(["", "correct"])
    why = pl.when(told).then(pl.col("reason")).otherwise(pl.lit("unverified"))
    return judge(traces, pl.when(~pl.col("verified")).then(why))


def beyond_per_problem(traces: pl.DataFrame, most: int) -> pl.DataFrame:
    """Judge traces beyond the first `most` of their problem: "enough_traces"."""
    place = pl.int_range(pl.len()).over("problem_id")
    return judge(traces, pl.when(place >= most).then(pl.lit("enough_traces")))


_NO_LIMIT = 2**62
