"""Pairs of samples that stand against each other one by one, labeled by scores or an oracle."""

from collections.abc import Iterable, Sequence

import polars as pl

from posttrain.data.pair_builders.base import PairCandidate
from posttrain.data.pairs import pair_row
from posttrain.data.schemas import IDENTITY, PAIRS, completions_table, with_row_ids
from posttrain.learning.preference.config import PreferenceConfig
from posttrain.learning.rollouts.scoring import ScoredSample
from posttrain.learning.training.pairwise import with_tokens


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
    groups = (samples_by_problem(made), samples_by_problem(theirs), samples_by_problem(drawn_by))
    for own, others, rest in zip(*groups, strict=True):
        texts = [[each.sample.text for each in group] for group in (own, others)]
        scores = {each.sample.text: each.score.value for each in [*own, *others, *rest]}
        drawn = [each.sample.text for each in rest]
        found += config.oracle.labels(own[0].problem, list(zip(*texts, strict=True)), drawn, scores)
    return found


def samples_by_problem(samples: Sequence[ScoredSample]) -> list[list[ScoredSample]]:
    """Put samples of one problem together.

    Args:
        samples: Of any problems.

    Returns:
        A list for each problem, all in the order in which they came.

    """
    groups: dict[str, list[ScoredSample]] = {}
    for each in samples:
        groups.setdefault(each.problem.id, []).append(each)
    return list(groups.values())


def _by_scores(own: ScoredSample, other: ScoredSample) -> float | None:
    values = own.score.value, other.score.value
    if values[0] is None or values[1] is None or values[0] == values[1]:
        return None
    return float(values[0] > values[1])
