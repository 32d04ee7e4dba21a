"""What a round is trained on: pairs of its own samples, and samples of the reference."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from posttrain.data.schemas import PAIRS, Problem, completions_table, row_id
from posttrain.data.tables import write_table
from posttrain.learning.models.load import weights_digest
from posttrain.learning.preference.config import PreferenceConfig
from posttrain.learning.rewards.components.verifier import VerifierCache
from posttrain.learning.rollouts.engines.base import RolloutEngine
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.rollouts.scoring import make_prompts, sample_and_score_all
from posttrain.learning.training.pairwise import with_tokens
from posttrain.stage.context import StageContext
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.models.load import Policy


def draw_pairs(
    engine: RolloutEngine,
    policy: "Policy",
    problems: Sequence[Problem],
    *,
    config: PreferenceConfig,
    context: StageContext,
) -> tuple[pl.DataFrame, dict[str, float]]:
    """Sample, score and pair, with the tokens that were drawn: text has other spellings.

    Args:
        engine: Holds the policy of this round.
        policy: The same.
        problems: What may be asked.
        config: How many of them, and how pairs are built.
        context: Of the round: everything random follows from its seed.

    Returns:
        PAIRS with the tokens of each side, and what the round was like.

    """
    drawn = sorted(problems, key=lambda p: row_id("round", context.seed, p.id))
    drawn = drawn[: config.sampling.problems]
    made = sample_and_score_all(
        engine,
        drawn,
        make_prompts(policy.tokenizer, drawn),
        config.sampling.params(purpose_seed(context.seed, "samples")),
        verify=VerifierCache(),
        report=lambda _done: None,
    )
    generator = weights_digest(policy.model)
    samples = completions_table([each.completion(generator) for each in made])
    pairs = config.pairs.build(samples, seed=context.seed)
    pairs = pairs.with_columns(split=pl.lit("train"))
    context.scratch.mkdir(parents=True, exist_ok=True)
    write_table(pairs, context.scratch / "pairs.parquet", PAIRS)
    judged = [each.score.correct for each in made if each.score.correct is not None]
    tokens = {(each.problem.id, each.sample.text): each.sample.token_ids for each in made}
    for side in ("chosen", "rejected"):
        texts = zip(pairs["problem_id"], pairs[side], strict=True)
        pairs = with_tokens(pairs, side, [tokens[each] for each in texts])
    return pairs, {
        "num_pairs": float(len(pairs)),
        "num_samples": float(len(made)),
        "solve_rate": sum(judged) / len(judged) if judged else 0.0,
    }


def with_samples_of(
    pairs: pl.DataFrame,
    problems: Sequence[Problem],
    policy: "Policy",
    reference: "PreTrainedModel",
    *,
    config: PreferenceConfig,
    context: StageContext,
) -> pl.DataFrame:
    """Give each pair a sample of the reference for the same problem, where optimism needs one.

    Args:
        pairs: PAIRS of a round.
        problems: Those that the pairs are of, among others.
        policy: Tokenizer, and the kind of model.
        reference: What is sampled.
        config: Algorithm and sampling.
        context: Of the round, with its seed.

    Returns:
        The pairs, with columns `sampled` and its tokens.

    """
    if not config.algorithm.optimism_coefficient:
        return pairs
    wanted = set(pairs["problem_id"])
    asked = [problem for problem in problems if problem.id in wanted]
    params = config.sampling.params(purpose_seed(context.seed, "reference"))
    prompts, once = make_prompts(policy.tokenizer, asked), replace(params, num_samples=1)
    sampled, size = replace(policy, model=reference), config.sampling.batch_size
    with open_engine(config.sampling.engine, sampled, batch_size=size) as engine:
        drawn = {sample.prompt_id: sample for sample in engine.sample(prompts, once)}
    samples = [drawn[name] for name in pairs["problem_id"]]
    pairs = pairs.with_columns(pl.Series("sampled", [sample.text for sample in samples]))
    return with_tokens(pairs, "sampled", [sample.token_ids for sample in samples])
