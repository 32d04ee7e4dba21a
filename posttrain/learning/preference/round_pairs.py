"""What a round is trained on: pairs of the policy's samples, or of its and the reference's."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from posttrain.data.pair_builders.base import PairCandidate
from posttrain.data.pairs import pair_row
from posttrain.data.schemas import IDENTITY, PAIRS, Problem, completions_table, row_id, with_row_ids
from posttrain.data.tables import read_table, write_table
from posttrain.learning.models.load import weights_digest
from posttrain.learning.preference.config import PreferenceConfig, ReferenceMixture
from posttrain.learning.rewards.components.verifier import VerifierCache
from posttrain.learning.rollouts.engines.base import RolloutEngine
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.rollouts.limits import tokens_for
from posttrain.learning.rollouts.scoring import ScoredSample, make_prompts, sample_and_score_all
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
    initial: "PreTrainedModel",
    config: PreferenceConfig,
    context: StageContext,
) -> tuple[pl.DataFrame, dict[str, float]]:
    """Sample, score and pair, with the tokens that were drawn: text has other spellings.

    Args:
        engine: Holds the policy of this round.
        policy: The same.
        problems: What may be asked.
        initial: The policy before the first round, which is sampled too where it is the opponent,
            by itself or in a mixture with that of the round.
        config: How many of them, and how pairs are built.
        context: Of the round: everything random follows from its seed.

    Returns:
        PAIRS with the tokens of each side (and of the reference's, `sampled`, where it is the
        opponent), and what the round was like.

    """
    drawn = sorted(problems, key=lambda p: row_id("round", context.seed, p.id))
    drawn = drawn[: config.sampling.problems]
    made = _sampled(engine, policy, drawn, config, context, purpose="samples")
    generator = weights_digest(policy.model)
    if config.opponent == "reference":
        size = config.sampling.batch_size
        other = replace(policy, model=initial)
        with open_engine(config.sampling.engine, other, batch_size=size) as opened:
            theirs = _sampled(opened, policy, drawn, config, context, purpose="reference")
        pairs = pairs_against(
            made, theirs, generators=(generator, weights_digest(initial)), config=config
        )
    elif config.oracle is not None:
        own = _by_problem(made)
        first, second = ([each for group in own for each in group[side::2]] for side in (0, 1))
        faced = _of_mixture(policy, initial, drawn, config, context)
        pairs = pairs_against(
            first, second, generators=(generator, generator), config=config, faced=faced
        )
        pairs = pairs.drop("sampled", "sampled_tokens")
    else:
        samples = completions_table([each.completion(generator) for each in made])
        pairs = config.pairs.build(samples, seed=context.seed)
        pairs = _with_tokens_of(made, pairs.with_columns(split=pl.lit("train")))
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


def pairs_against(
    made: Sequence[ScoredSample],
    theirs: Sequence[ScoredSample],
    *,
    generators: tuple[str, str],
    config: PreferenceConfig,
    faced: Sequence[ScoredSample] = (),
) -> pl.DataFrame:
    """Set each sample of the policy against one of the reference, or of its own.

    The better scored one is chosen; a pair of equal scores has no better one, and is left out.
    Where there is an oracle it says how likely the first is the better: the likelier side is
    chosen, with the probability as its label. Source: XPO, arXiv 2405.21046, algorithm 1, lines 4
    to 6.

    Args:
        made: The policy's samples.
        theirs: What stands against each: as many of the same problems in the same order.
        generators: Digests of who drew the two.
        config: Most pairs of a problem, and in all; and the oracle.
        faced: What the oracle takes win rates against; the policy's own samples unless it is given.

    Returns:
        PAIRS with the tokens of each side, and those of the second sample as `sampled`.

    """
    sure = _labels(made, theirs, config, faced)
    sides = [
        completions_table([each.completion(by) for each in samples])
        for samples, by in zip((made, theirs), generators, strict=True)
    ]
    rows: list[dict[str, object]] = []
    tokens: list[tuple[tuple[int, ...], ...]] = []
    taken: dict[str, int] = {}
    for own, other, wins, *both in zip(made, theirs, sure, *map(_candidates, sides), strict=True):
        name = own.problem.id
        if wins is None or taken.get(name, 0) == config.pairs.per_problem:
            continue
        taken[name] = taken.get(name, 0) + 1
        pair = [(both[0], own.sample.token_ids), (both[1], other.sample.token_ids)]
        if wins < 0.5:
            pair.reverse()
        asked = ("source", "prompt", "context")
        about = {"problem_id": name} | {each: getattr(own.problem, each) for each in asked}
        (better, chosen), (worse, rejected) = pair
        known = {"split": "train", "sampled": both[1].text, "label_prob": max(wins, 1 - wins)}
        rows.append(about | pair_row(better, worse) | known)
        tokens.append((chosen, rejected, other.sample.token_ids))
    schema = {name: PAIRS[name] for name in PAIRS if name != "id"} | {"sampled": pl.String}
    pairs = pl.DataFrame(rows, schema=schema)
    pairs = with_row_ids(pairs, IDENTITY["pairs"]).select([*PAIRS, "sampled"])
    for place, side in enumerate(("chosen", "rejected", "sampled")):
        pairs = with_tokens(pairs, side, [each[place] for each in tokens])
    if config.pairs.limit is not None:
        turn = pl.int_range(pl.len()).over("problem_id")
        pairs = pairs.sort(turn, maintain_order=True).head(config.pairs.limit)
    return pairs


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


def _candidates(completions: pl.DataFrame) -> Iterable[PairCandidate]:
    rows = completions.select("id", "text", "verified", "score").rows()
    return (PairCandidate(*row) for row in rows)


def _labels(
    made: Sequence[ScoredSample],
    theirs: Sequence[ScoredSample],
    config: PreferenceConfig,
    faced: Sequence[ScoredSample],
) -> list[float | None]:
    """How likely each first sample is better than the second; None where nothing is preferred."""
    if config.oracle is None:
        return [_by_scores(own, other) for own, other in zip(made, theirs, strict=True)]
    found: list[float | None] = []
    # Of a policy against itself both sides are what it draws.
    drawn_by = faced or ([*made] if config.opponent == "reference" else [*made, *theirs])
    groups = (_by_problem(made), _by_problem(theirs), _by_problem(drawn_by))
    for own, others, rest in zip(*groups, strict=True):
        texts = [[each.sample.text for each in group] for group in (own, others)]
        scores = {each.sample.text: each.score.value for each in [*own, *others, *rest]}
        drawn = [each.sample.text for each in rest]
        found += config.oracle.labels(own[0].problem, list(zip(*texts, strict=True)), drawn, scores)
    return found


def _of_mixture(
    policy: "Policy",
    initial: "PreTrainedModel",
    problems: Sequence[Problem],
    config: PreferenceConfig,
    context: StageContext,
) -> list[ScoredSample]:
    """Samples of the geometric mixture that is the reference, where it is the opponent."""
    from posttrain.learning.rollouts.engines.mixture import MixtureRolloutEngine

    if config.opponent != "mixture" or not isinstance(config.reference, ReferenceMixture):
        return []
    share, size = config.reference.initial, config.sampling.batch_size
    engine = MixtureRolloutEngine(policy, initial, share=share, batch_size=size)
    return _sampled(engine, policy, problems, config, context, purpose="mixture")


def _by_problem(samples: Sequence[ScoredSample]) -> list[list[ScoredSample]]:
    """Samples of one problem together, in their order."""
    groups: dict[str, list[ScoredSample]] = {}
    for each in samples:
        groups.setdefault(each.problem.id, []).append(each)
    return list(groups.values())


def _by_scores(own: ScoredSample, other: ScoredSample) -> float | None:
    values = own.score.value, other.score.value
    if values[0] is None or values[1] is None or values[0] == values[1]:
        return None
    return float(values[0] > values[1])


def _with_tokens_of(made: Sequence[ScoredSample], pairs: pl.DataFrame) -> pl.DataFrame:
    tokens = {(each.problem.id, each.sample.text): each.sample.token_ids for each in made}
    for side in ("chosen", "rejected"):
        texts = zip(pairs["problem_id"], pairs[side], strict=True)
        pairs = with_tokens(pairs, side, [tokens[each] for each in texts])
    return pairs


def _write(pairs: pl.DataFrame, folder: Path) -> None:
    """Keep the pairs for a next attempt, and for the rounds that go on learning from them."""
    folder.mkdir(parents=True, exist_ok=True)
    write_table(pairs.select(list(PAIRS)), folder / "pairs.parquet", PAIRS)
    pairs.drop(list(PAIRS)).write_parquet(folder / "tokens.parquet")
