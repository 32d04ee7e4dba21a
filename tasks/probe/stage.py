"""Let the policy attempt every problem several times; keep the samples and the solve rates."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import torch

from posttrain.data.schemas import (
    COMPLETIONS,
    IDENTITY,
    SOLVE_RATES,
    completions_table,
    row_id,
    with_row_ids,
)
from posttrain.data.source_verifiers import read_scored_problems
from posttrain.data.tables import write_table
from posttrain.learning.episodes.figures import figures_of
from posttrain.learning.episodes.sampling import PlayingEngine, open_playing
from posttrain.learning.episodes.second_tries import second_tries
from posttrain.learning.maths.intervals import wilson_interval
from posttrain.learning.models.load import Policy, load_policy, weights_digest
from posttrain.learning.rewards.verify import VerifierCache, places_of_answers, stated_answers
from posttrain.learning.rollouts.limits import refuse_cutting, tell_no_room, tokens_for
from posttrain.learning.rollouts.scoring import (
    ScoredSample,
    make_prompts,
    problems_of,
    sample_and_score_all,
    scored_samples,
    share_unjudged,
    verifying,
)
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed
from tasks.probe.config import ProbeConfig

GUIDED = "+guidance"
"""Behind the name of the policy, as the generator of second tries."""


def run(
    config: ProbeConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Choose problems, sample, score, count."""
    table = read_scored_problems(inputs["problems"], inputs.get("verifiers"))
    problems = problems_of(even_share(table, config.num_problems, seed=context.seed))
    policy = load_policy(inputs["policy"], device=context.device)
    digest = weights_digest(policy.model)

    refuse_cutting(config.max_tokens, policy.model, most=config.most_cut, where="probe")
    limit = tokens_for(config.max_tokens, policy.model, note=context.note)
    params = config.params(purpose_seed(context.seed, "probe"), max_tokens=limit)
    prompts = make_prompts(policy.tokenizer, problems)
    with (
        open_playing(
            config,
            policy,
            problems,
            ray=context.ray,
            inputs=inputs,
            device=context.device,
        ) as engine,
        verifying(context.ray) as verify,
    ):
        tell_no_room(
            prompts,
            engine.context_length,
            of="the policy",
            then="they count as cut off",
            note=context.note,
        )

        asked = {"problems": problems, "prompts": prompts, "params": params}
        scored = _attempts(config, engine, policy, asked, verify, context)
        second = (
            second_tries(
                engine,
                policy.tokenizer,
                scored,
                config.guidance,
                params,
                verify=verify,
                truncated=config.truncated,
            )
            if config.guidance
            else []
        )

    first = completions_table([made.completion(digest) for made in scored])
    guided = completions_table([made.completion(f"{digest}{GUIDED}") for made in second])
    # Told before a probe of which nothing could be judged is refused.
    unjudged = share_unjudged(scored, of="the policy", note=context.note)
    rates = solve_rates(first, policy=digest)
    write_table(pl.concat([first, guided]), outputs["samples"], COMPLETIONS)
    write_table(rates, outputs["solve_rates"], SOLVE_RATES)
    metrics = _metrics(scored, rates, stated=_num_stated(scored, context))
    if config.environment.authors():
        metrics |= {f"probe/{name}": value for name, value in figures_of(scored).named()}
    if second:
        judged = [made.score.correct for made in second if made.score.correct is not None]
        metrics["probe/second_tries"] = float(len(second))
        metrics["probe/second_solve_rate"] = sum(judged) / len(judged) if judged else 0.0
    return metrics | ({"probe/unjudged": unjudged} if unjudged else {})


def _attempts(
    config: ProbeConfig,
    engine: PlayingEngine,
    policy: Policy,
    asked: Mapping[str, Any],
    verify: VerifierCache,
    context: StageContext,
) -> list[ScoredSample]:
    """Attempt every problem as often as is said, or as a search has it."""

    def report(done: int) -> None:
        context.progress(done, len(asked["problems"]), unit="problem")

    rule = config.truncated
    if config.search is None:
        return sample_and_score_all(engine, **asked, verify=verify, truncated=rule, report=report)
    return config.search.searched(
        **asked,
        engine=engine.engine,
        policy=policy,
        score=partial(scored_samples, verify=verify, truncated=rule),
        report=report,
    )


def even_share(problems: pl.DataFrame, num_problems: int | None, *, seed: int) -> pl.DataFrame:
    """`num_problems` rows, as even over sources and difficulties as there are rows to take.

    Within a stratum the choice follows a hash of seed and id; the table's order is kept.
    """
    if num_problems is None or num_problems >= len(problems):
        return problems
    lots = [row_id("probe", seed, problem_id) for problem_id in problems["id"]]
    turn = pl.col("lot").rank("ordinal").over("source", "difficulty")
    chosen = (
        problems.with_row_index("place")
        .with_columns(pl.Series("lot", lots))
        .with_columns(turn.alias("turn"))
        .sort("turn", "lot")
        .head(num_problems)
    )
    return chosen.sort("place").select(problems.columns)


def solve_rates(samples: pl.DataFrame, *, policy: str) -> pl.DataFrame:
    """One row per problem, in the order of the samples: counts, rate and its Wilson interval."""
    counted = samples.group_by("problem_id", maintain_order=True).agg(
        pl.col("id").unique(maintain_order=True).alias("parents"),
        pl.col("source", "difficulty").first(),
        pl.col("verified").count().cast(pl.Int32).alias("attempts"),
        pl.col("verified").sum().cast(pl.Int32).alias("solved"),
    )
    # An attempt that could not be judged has not failed: it was not made.
    counted = counted.filter(pl.col("attempts") > 0)
    if counted.is_empty():
        raise UserError(
            "probe: no answer could be judged, so there is no solve rate; look at the judge's"
            " template and pattern"
        )
    interval = wilson_interval(
        torch.tensor(counted["solved"].to_list()), torch.tensor(counted["attempts"].to_list())
    )
    return with_row_ids(
        counted.with_columns(
            pl.Series("solve_rate", interval.estimate.tolist()),
            pl.Series("low", interval.low.tolist()),
            pl.Series("high", interval.high.tolist()),
            pl.lit(policy).alias("policy"),
        ),
        IDENTITY["solve_rates"],
    )


def _num_stated(scored: Sequence[ScoredSample], context: StageContext) -> int:
    """Count the samples that state an answer; say where it was looked for if none does."""
    by_problem: dict[str, list[ScoredSample]] = {}
    for made in scored:
        by_problem.setdefault(made.problem.id, []).append(made)
    stated = sum(
        answer is not None
        for group in by_problem.values()
        for answer in stated_answers([made.sample.text for made in group], group[0].problem)
    )
    places = places_of_answers(group[0].problem for group in by_problem.values())
    if not stated and places:
        context.note(
            f"no sample states an answer {places}; let `answer` of that verifier be where the"
            " policy writes it"
        )
    return stated


def _metrics(
    scored: Sequence[ScoredSample], rates: pl.DataFrame, *, stated: int
) -> dict[str, float]:
    mixed = (rates["solved"] > 0) & (rates["solved"] < rates["attempts"])
    cut = [made.was_cut for made in scored]
    lengths = [len(made.sample.token_ids) for made in scored]
    return {
        "probe/solve_rate": float(rates["solve_rate"].to_numpy().mean()),
        "probe/share_with_signal": float(mixed.to_numpy().mean()),
        "probe/truncation_rate": sum(cut) / len(scored),
        "probe/format_rate": stated / len(scored),
        "probe/mean_length": sum(lengths) / len(scored),
        "probe/num_problems": float(len(rates)),
    }
