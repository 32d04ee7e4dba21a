"""Whether an algorithm fits the stage that is to carry it out."""

from collections.abc import Collection

from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.part import NEEDS
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.schedule import at


def check(
    algorithm: Algorithm,
    *,
    where: str,
    group_size: int | None = None,
    provided: Collection[str] = NEEDS,
    max_tokens: int | None = None,
) -> None:
    """Refuse an algorithm that a stage cannot carry out.

    Args:
        algorithm: The algorithm.
        where: Its place in the recipe.
        group_size: Rollouts of each problem; None leaves it open.
        provided: What the stage's learner can compute, of `part.NEEDS`.
        max_tokens: The limit of generation; None where there is none.

    Raises:
        UserError: The first contradiction, with its place and its remedy.

    """
    algorithm = at(algorithm, 0, {})
    refused = None if group_size is None else algorithm.advantage.refuse_group_size(group_size)
    if refused:
        raise UserError(f"{where}.advantage: {refused}")
    for path, part in algorithm.parts.items():
        for need in sorted(part.needs - set(provided)):
            known = f" ({NEEDS[need]})" if need in NEEDS else nearest(need, provided)
            raise UserError(
                f"{where}.{path}: {part.kind} needs {need}{known}, which this stage does not have;"
                " take another kind, or leave it out"
            )
    _check_lengths(algorithm, max_tokens, where)


def _check_lengths(algorithm: Algorithm, max_tokens: int | None, where: str) -> None:
    aggregation, overlong = algorithm.aggregation, algorithm.overlong
    if aggregation.kind == "constant_length" and (aggregation.length or max_tokens) is None:
        raise UserError(
            f"{where}.aggregation.kind constant_length: there is no limit of tokens to divide by;"
            " set aggregation.length, or the stage's max_tokens"
        )
    if overlong is None:
        return
    if (overlong.limit or max_tokens) is None:
        raise UserError(
            f"{where}.overlong: a penalty for length needs a limit of tokens;"
            " set overlong.limit, or the stage's max_tokens"
        )
    limit, buffer = overlong.buffer(max_tokens)
    if max_tokens is not None and limit - buffer >= max_tokens:
        raise UserError(
            f"{where}.overlong: the penalty starts beyond {limit - buffer} tokens, but completions"
            f" end at max_tokens {max_tokens}; lower overlong.limit, or leave it out"
        )


def note_on_ratio(algorithm: Algorithm, *, updates_per_step: int, oldest: int) -> str | None:
    """Say that a ratio never leaves 1, where every update is the first one of its rollouts.

    All surrogates then have the gradient of REINFORCE, whatever they are called.

    Args:
        algorithm: The algorithm.
        updates_per_step: Optimizer updates on the rollouts of one step.
        oldest: Most steps that a policy which drew something is behind the one that learns from it.

    Returns:
        A sentence; None where the ratio moves, or there is none, or nothing is missed without one.

    """
    surrogate = algorithm.surrogate
    stays_at_one = updates_per_step == 1 and not oldest
    if not (stays_at_one and surrogate.HAS_RATIO and surrogate.PLAIN_AT_ONE and surrogate.BOUNDS):
        return None
    return (
        f"surrogate {surrogate.kind} never sees a ratio other than 1, as a step makes one"
        " update of rollouts that are its own policy's: it is the plain policy gradient; for the"
        " ratio to count, set updates.minibatches or updates.epochs above 1"
    )


def check_on_policy(
    algorithm: Algorithm, *, where: str, updates_per_step: int, oldest: int
) -> None:
    """Refuse to learn without a ratio from what another policy sampled: the gradient is wrong.

    Args:
        algorithm: The algorithm.
        where: Its place in the recipe.
        updates_per_step: Optimizer updates on the rollouts of one step.
        oldest: Most steps that a policy which drew something is behind the one that learns from it.

    Raises:
        UserError: With the place and the remedy.

    """
    surrogate = algorithm.surrogate
    if surrogate.HAS_RATIO:
        return
    remedy = "or take a surrogate that weighs by the ratio, such as clip"
    if updates_per_step > 1:
        raise UserError(
            f"{where}.surrogate {surrogate.kind} has no ratio, so it may learn from a rollout once,"
            f" but a step makes {updates_per_step} updates; set updates.epochs and"
            f" updates.minibatches to 1, {remedy}"
        )
    corrected = any(each.CORRECTS_ENGINE for each in algorithm.token_weights.values())
    if oldest and not corrected:
        raise UserError(
            f"{where}.surrogate {surrogate.kind} has no ratio, so what policies drew that are up to"
            f" {oldest} steps older would bias it; set staleness to 0 and carry nothing over, set"
            f" old_policy to recomputed with token_weights.importance, {remedy}"
        )
