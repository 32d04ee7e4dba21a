"""What a round is trained on: pairs of the policy's samples, or of its and the reference's."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from posttrain.data.schemas import PAIRS, Problem, row_id
from posttrain.data.tables import read_table, write_table
from posttrain.learning.preference.config import PreferenceConfig, ReferenceMixture
from posttrain.learning.preference.frozen_policy import FrozenPolicy
from posttrain.learning.preference.neighbors import pairs_against, samples_by_problem
from posttrain.learning.preference.pooled import pooled_pairs
from posttrain.learning.rewards.verify import VerifierCache
from posttrain.learning.rollouts.engines.base import RolloutEngine
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.rollouts.limits import tokens_for
from posttrain.learning.rollouts.scoring import ScoredSample, make_prompts, sample_and_score_all
from posttrain.stage.context import StageContext
from posttrain.stage.hashing import sha256_of
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.learning.models.load import Policy


@dataclass(frozen=True)
class RoundQuestions:
    """What rounds ask, and what somebody else answers."""

    problems: Sequence[Problem]
    teacher: pl.DataFrame | None = None
    """COMPLETIONS that join the samples of each round; None where nobody's do."""

    @property
    def digests(self) -> dict[str, str]:
        """What a checkpoint must agree with: one of other problems is refused, not resumed."""
        found = {"problems": sha256_of("".join(problem.id for problem in self.problems))}
        if self.teacher is not None:
            found["teacher"] = sha256_of("".join(self.teacher["id"]))
        return found


def draw_pairs(
    engine: RolloutEngine,
    policy: "Policy",
    asked: RoundQuestions,
    *,
    initial: FrozenPolicy,
    config: PreferenceConfig,
    context: StageContext,
) -> tuple[pl.DataFrame, dict[str, float]]:
    """Sample, score and pair, with the tokens that were drawn: text has other spellings.

    Args:
        engine: Holds the policy of this round.
        policy: The same.
        asked: What may be asked, and what a teacher answered.
        initial: The policy before the first round, which is sampled too where it is the opponent,
            by itself or in a mixture with that of the round.
        config: How many of them, and how pairs are built.
        context: Of the round: everything random follows from its seed.

    Returns:
        PAIRS with the tokens of each side (and of the reference's, `sampled`, where it is the
        opponent), and what the round was like.

    """
    drawn = sorted(asked.problems, key=lambda p: row_id("round", context.seed, p.id))
    drawn = drawn[: config.sampling.problems]
    made = _sampled(engine, policy, drawn, config, context, purpose="samples")
    generator = FrozenPolicy.of(policy.model).digest()
    if config.opponent == "reference":
        size = config.sampling.batch_size
        with (
            initial.reading() as model,
            open_engine(
                config.sampling.engine, replace(policy, model=model), batch_size=size
            ) as opened,
        ):
            theirs = _sampled(opened, policy, drawn, config, context, purpose="reference")
        pairs = pairs_against(made, theirs, generators=(generator, initial.digest()), config=config)
    elif config.compares_neighbors:
        own = samples_by_problem(made)
        first, second = ([each for group in own for each in group[side::2]] for side in (0, 1))
        faced = _of_mixture(policy, initial, drawn, config, context)
        pairs = pairs_against(
            first, second, generators=(generator, generator), config=config, faced=faced
        )
        pairs = pairs.drop("sampled", "sampled_tokens")
    else:
        pairs = pooled_pairs(
            made,
            policy,
            generator=generator,
            teacher=asked.teacher,
            config=config,
            seed=context.seed,
        )
    _write(pairs, context.scratch)
    judged = [each.score.correct for each in made if each.score.correct is not None]
    return pairs, {
        "num_pairs": float(len(pairs)),
        "num_samples": float(len(made)),
        "solve_rate": sum(judged) / len(judged) if judged else 0.0,
    }


def read_pairs(folder: Path) -> pl.DataFrame:
    """Read back what `draw_pairs` drew, with its tokens, from the round's scratch folder."""
    pairs = read_table(folder / "pairs.parquet", PAIRS)
    return pairs.hstack(pl.read_parquet(folder / "tokens.parquet"))


def _sampled(
    engine: RolloutEngine,
    policy: "Policy",
    problems: Sequence[Problem],
    config: PreferenceConfig,
    context: StageContext,
    *,
    purpose: str,
) -> list[ScoredSample]:
    # Said once, by the stage's report.
    limit = tokens_for(config.sampling.max_tokens, policy.model, note=lambda _: None)
    return sample_and_score_all(
        engine,
        problems,
        make_prompts(policy.tokenizer, problems),
        config.sampling.params(purpose_seed(context.seed, purpose), max_tokens=limit),
        verify=VerifierCache(),
        report=lambda _done: None,
        truncated=config.sampling.truncated,
    )


def _of_mixture(
    policy: "Policy",
    initial: FrozenPolicy,
    problems: Sequence[Problem],
    config: PreferenceConfig,
    context: StageContext,
) -> list[ScoredSample]:
    """Samples of the geometric mixture that is the reference, where it is the opponent."""
    if config.opponent != "mixture" or not isinstance(config.reference, ReferenceMixture):
        return []
    share, size = config.reference.initial, config.sampling.batch_size
    with initial.mixed_into(policy, share=share, batch_size=size) as engine:
        return _sampled(engine, policy, problems, config, context, purpose="mixture")


def _write(pairs: pl.DataFrame, folder: Path) -> None:
    """Keep the pairs for a next attempt, and for the rounds that go on learning from them."""
    folder.mkdir(parents=True, exist_ok=True)
    write_table(pairs.select(list(PAIRS)), folder / "pairs.parquet", PAIRS)
    pairs.drop(list(PAIRS)).write_parquet(folder / "tokens.parquet")
