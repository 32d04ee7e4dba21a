"""Whether an algorithm fits the stage that is to carry it out."""

from posttrain.learning.algorithms.advantage_config import GroupAdvantage
from posttrain.learning.algorithms.config import Algorithm
from posttrain.stage.errors import UserError


def check(
    algorithm: Algorithm,
    *,
    where: str,
    group_size: int | None = None,
    has_reference: bool | None = None,
    has_critic: bool | None = None,
    max_tokens: int | None = None,
) -> None:
    """Refuse an algorithm that the stage at `where` cannot carry out; None leaves a thing open.

    Raises:
        UserError: The first contradiction, with its place and its remedy.

    """
    if group_size is not None:
        _check_group(algorithm, group_size, where)
    if has_reference is False and algorithm.kl is not None:
        raise UserError(
            f"{where}.kl.coefficient {algorithm.kl.coefficient}: there is no reference policy to"
            " stay near; give the stage a reference model, or leave kl out"
        )
    if has_critic is False and algorithm.critic is not None:
        raise UserError(
            f"{where}.critic: the stage has no value model to train;"
            " give it one, or set advantage.kind to group and leave critic out"
        )
    _check_lengths(algorithm, max_tokens, where)


def _check_group(algorithm: Algorithm, group_size: int, where: str) -> None:
    advantage = algorithm.advantage
    if isinstance(advantage, GroupAdvantage) and advantage.baseline != "none" and group_size < 2:
        raise UserError(
            f"{where}.advantage.baseline {advantage.baseline}: group_size {group_size} makes every"
            " advantage 0, as a rollout is compared with its group;"
            " set group_size to at least 2, or baseline to none"
        )


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


def check_on_policy(
    algorithm: Algorithm, *, where: str, updates_per_step: int, staleness: int
) -> None:
    """Refuse to learn without a ratio from what another policy sampled: the gradient is wrong.

    Raises:
        UserError: With the place and the remedy.

    """
    if algorithm.ratio.kind != "reinforce":
        return
    remedy = "or take a ratio.kind that weighs by the ratio, such as clip"
    if updates_per_step > 1:
        raise UserError(
            f"{where}.ratio.kind reinforce has no ratio, so it may learn from a rollout once,"
            f" but a step makes {updates_per_step} updates; set updates.epochs and"
            f" updates.minibatches to 1, {remedy}"
        )
    if staleness and algorithm.correction.weights is None:
        raise UserError(
            f"{where}.ratio.kind reinforce has no ratio, so staleness {staleness} would bias"
            " it with rollouts of older policies; set staleness to 0, set correction.old to"
            f" recomputed and correction.weights, {remedy}"
        )
