"""Pairs that a builder makes of all answers of a round, a teacher's among them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from posttrain.data.contexts import prompts_of
from posttrain.data.rows import encode_rows
from posttrain.data.schemas import Problem, completions_table
from posttrain.learning.preference.config import PreferenceConfig
from posttrain.learning.rewards.components.oracles.base import PairOracle
from posttrain.learning.rollouts.scoring import ScoredSample
from posttrain.learning.training.pairwise import with_tokens

if TYPE_CHECKING:
    from posttrain.learning.models.load import Policy


def pooled_pairs(
    made: Sequence[ScoredSample],
    policy: "Policy",
    *,
    generator: str,
    teacher: pl.DataFrame | None,
    config: PreferenceConfig,
    seed: int,
) -> pl.DataFrame:
    """Build pairs of all that was answered to each problem of a round.

    Where there is an oracle, an answer's score is how often it is preferred to one of the pool of
    its problem, each of which counts as often as it was drawn, itself as a tie. Source: DNO, arXiv
    2404.03715, algorithm 2, lines 3 to 6: a teacher's answer is ranked with the policy's by win
    rates, and pairs whose ranks lie far apart are kept.

    Args:
        made: The policy's samples.
        policy: Spells what it did not draw itself.
        generator: Digest of the policy.
        teacher: COMPLETIONS that join the policy's, of any problems; None where nobody's do.
        config: The builder, its limits, and the oracle.
        seed: Decides the choice.

    Returns:
        PAIRS for training, with the tokens of each side.

    """
    samples = completions_table([each.completion(generator) for each in made])
    problems = {each.problem.id: each.problem for each in made}
    beside = None if teacher is None else _answering(teacher, problems)
    if config.oracle is not None:
        theirs = samples.clear() if beside is None else beside
        ranked = _ranked(samples, theirs, problems, config.oracle)
        samples, beside = ranked[False], ranked[True]
    pairs = config.pairs.build(samples, seed=seed, beside=beside)
    return _with_tokens_of(made, pairs.with_columns(split=pl.lit("train")), policy)


def _answering(teacher: pl.DataFrame, problems: dict[str, Problem]) -> pl.DataFrame:
    """What the teacher answered to the round's problems, in the context in which those are asked.

    A system prompt of the teacher's own is not what the policy is to answer under.
    """
    theirs = teacher.filter(pl.col("problem_id").is_in([*problems]))
    asked = [problems[name].context for name in theirs["problem_id"]]
    return theirs.with_columns(context=pl.Series(asked, dtype=pl.String))


def _ranked(
    samples: pl.DataFrame, beside: pl.DataFrame, problems: dict[str, Problem], oracle: PairOracle
) -> dict[bool, pl.DataFrame]:
    """Give answers what they win against their problem's pool as their score.

    Right is, for builders that ask, what wins more than the pool's mean. Those of others than the
    policy are found under True.
    """
    own, others = (
        each.with_columns(of_other=pl.lit(by)) for by, each in ((False, samples), (True, beside))
    )
    groups = []
    for group in pl.concat([own, others]).partition_by("problem_id", maintain_order=True):
        texts = group["text"].to_list()
        # Of a text that both wrote, the policy's own was judged in this round, and comes last here.
        judged = group.drop_nulls("score").reverse()
        scores = dict(zip(judged["text"], judged["score"], strict=True))
        rates = oracle.win_rates(problems[group["problem_id"][0]], texts, texts, scores)
        found = group.with_columns(score=pl.Series(rates, dtype=pl.Float64)).drop_nulls("score")
        groups.append(found.with_columns(verified=pl.col("score") > pl.col("score").mean()))
    ranked = pl.concat(groups)
    return {by: ranked.filter(of_other=by).drop("of_other") for by in (False, True)}


def _with_tokens_of(
    made: Sequence[ScoredSample], pairs: pl.DataFrame, policy: "Policy"
) -> pl.DataFrame:
    """Attach the tokens that were drawn; what another one wrote is spelled as text is."""
    drawn = {(each.problem.id, each.sample.text): each.sample.token_ids for each in made}
    prompts = prompts_of(pairs)
    for side in ("chosen", "rejected"):
        names = list(zip(pairs["problem_id"], pairs[side], strict=True))
        others = [place for place, name in enumerate(names) if name not in drawn]
        asked, texts = [prompts[place] for place in others], [names[place][1] for place in others]
        rows = encode_rows(policy.tokenizer, asked, texts, allow_empty=True) if others else []
        spelled = {
            names[place]: row.ids[row.start :] for place, row in zip(others, rows, strict=True)
        }
        pairs = with_tokens(pairs, side, [{**spelled, **drawn}[name] for name in names])
    return pairs
