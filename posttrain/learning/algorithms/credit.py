"""The advantages of an algorithm: rewards in, credit for every token out, over a whole batch."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from posttrain.learning.algorithms.advantage_config import (
    GaeAdvantage,
    GroupAdvantage,
    ReturnAdvantage,
    TurnCredit,
)
from posttrain.learning.algorithms.config import Algorithm, OverlongConfig
from posttrain.learning.maths.advantages import group_relative
from posttrain.learning.maths.gae import discounted_returns, generalized_advantages
from posttrain.learning.maths.kl import kl_estimate, kl_in_reward
from posttrain.learning.maths.length import overlong_penalty
from posttrain.learning.maths.reduce import masked_sum
from posttrain.learning.maths.reweighting import sign_weighted
from posttrain.learning.maths.segments import joint_ids
from posttrain.learning.maths.turns import spread_turns
from posttrain.learning.maths.whitening import whiten


@dataclass(frozen=True)
class Outcomes:
    """What a whole batch of rollouts earned; only the first two are always needed."""

    rewards_B: Tensor
    """One reward per rollout."""
    group_B: Tensor
    """Equal ids are rollouts of one problem."""
    mask_BT: Tensor | None = None
    """The tokens that the policy drew; for whatever goes by tokens, and for length."""
    truncated_B: Tensor | None = None
    """True where a rollout was cut off at the limit of tokens."""
    scored_B: Tensor | None = None
    """False where nothing could judge the rollout: it gets 0 and enters no statistic."""
    sampled_logprobs_BT: Tensor | None = None
    """Of the sampler; for `kl` in the reward."""
    reference_logprobs_BT: Tensor | None = None
    """Of the reference policy; for `kl` in the reward."""
    values_BT: Tensor | None = None
    """Of the critic, before each token; for estimator gae."""
    last_value_B: Tensor | None = None
    """Of the critic after the last token of a rollout that was cut off; 0 for the others."""
    turn_BT: Tensor | None = None
    """Turn of each token, from 0; negative at tokens of no turn. For credit by turns."""
    turn_rewards_BK: Tensor | None = None
    """Reward of each turn; for credit by turns."""
    state_BK: Tensor | None = None
    """Id of the state that a turn starts from; for credit by state."""


class Credit(NamedTuple):
    """Advantages, and where there is a critic the targets of its values; no gradient."""

    advantages_BT: Tensor
    """``[B, T]``, or ``[B, 1]`` where all tokens of a rollout share one."""
    returns_BT: Tensor | None
    bears_loss_B: Tensor
    """False for rollouts to leave out of mask and denominator: unscored, or cut off where the
    algorithm does not keep those. Their advantages are 0."""


def advantages(
    algorithm: Algorithm, outcomes: Outcomes, *, max_tokens: int | None = None
) -> Credit:
    """The advantages of a whole batch: call this before it is cut into micro-batches.

    In order: penalty for length, divergence in the reward, estimator, whitening, sign weights.

    `max_tokens` is the limit of generation, for a length penalty that leaves its limit open.

    Raises:
        ValueError: A tensor that the algorithm needs is missing.

    """
    config = algorithm.advantage
    rewards_B = outcomes.rewards_B
    if algorithm.overlong is not None:
        rewards_B = rewards_B + _penalty(algorithm.overlong, outcomes, max_tokens)
    include_B = _included(config.truncated, outcomes)
    returns_BT = None
    if isinstance(config, GroupAdvantage):
        values_BT = _group_advantages(algorithm, config, rewards_B, include_B, outcomes)
    else:
        token_rewards_BT = _token_rewards(algorithm, rewards_B, outcomes)
        values_BT, returns_BT = _token_advantages(config, token_rewards_BT, outcomes)
    if config.whiten != "none":
        mask_BT = _needed(outcomes.mask_BT, "mask_BT", "whiten")
        counted_BT = mask_BT.bool() if include_B is None else mask_BT.bool() & include_B[:, None]
        values_BT = whiten(
            values_BT.expand_as(mask_BT),
            counted_BT,
            spread=config.whiten,
            epsilon=config.whiten_epsilon,
        )
    bears_loss_B = _included("drop" if config.truncated == "mask" else config.truncated, outcomes)
    if bears_loss_B is None:
        bears_loss_B = torch.ones_like(outcomes.group_B, dtype=torch.bool)
    else:
        values_BT = torch.where(bears_loss_B[:, None], values_BT, 0.0)
    if config.positive_weight != 1.0 or config.negative_weight != 1.0:
        values_BT = sign_weighted(
            values_BT, positive=config.positive_weight, negative=config.negative_weight
        )
    return Credit(values_BT, returns_BT, bears_loss_B)


def _penalty(config: OverlongConfig, outcomes: Outcomes, max_tokens: int | None) -> Tensor:
    limit, buffer = config.buffer(max_tokens)
    length_B = _needed(outcomes.mask_BT, "mask_BT", "overlong").bool().sum(-1)
    penalty_B = overlong_penalty(length_B, limit=limit, buffer=buffer, bounded=config.bounded)
    return config.factor * penalty_B.to(outcomes.rewards_B.dtype)


def _included(truncated: str, outcomes: Outcomes) -> Tensor | None:
    """Rollouts that enter the statistics; None where all do."""
    scored_B = None if outcomes.scored_B is None else outcomes.scored_B.bool()
    if truncated != "drop":
        return scored_B
    whole_B = ~_needed(outcomes.truncated_B, "truncated_B", "advantage.truncated").bool()
    return whole_B if scored_B is None else scored_B & whole_B


def _divergence_BT(algorithm: Algorithm, outcomes: Outcomes) -> Tensor | None:
    """Divergence of the sampler from the reference at each token, where rewards pay for it."""
    if algorithm.kl is None or algorithm.kl.place != "reward":
        return None
    return kl_estimate(
        _needed(outcomes.sampled_logprobs_BT, "sampled_logprobs_BT", "kl in the reward"),
        _needed(outcomes.reference_logprobs_BT, "reference_logprobs_BT", "kl in the reward"),
        estimator=algorithm.kl.estimator,
        ceiling=algorithm.kl.ceiling,
    )


def _group_advantages(
    algorithm: Algorithm,
    config: GroupAdvantage,
    rewards_B: Tensor,
    include_B: Tensor | None,
    outcomes: Outcomes,
) -> Tensor:
    if config.offset:
        rewards_B = rewards_B - config.offset
    divergence_BT = _divergence_BT(algorithm, outcomes)
    if algorithm.kl is not None and divergence_BT is not None:
        mask_BT = _needed(outcomes.mask_BT, "mask_BT", "kl in the reward")
        total_B = masked_sum(divergence_BT, mask_BT, -1).to(rewards_B.dtype)
        rewards_B = rewards_B - algorithm.kl.coefficient * total_B
    if config.among == "positive":
        positive_B = outcomes.rewards_B > 0
        include_B = positive_B if include_B is None else include_B & positive_B
    whole_B = group_relative(
        rewards_B,
        outcomes.group_B,
        baseline=config.baseline,
        scale=config.scale,
        epsilon=config.epsilon,
        include_B=include_B,
    )
    if config.turns is None:
        return whole_B[:, None]
    return _turn_advantages(config, config.turns, whole_B, include_B, outcomes)


def _turn_advantages(
    config: GroupAdvantage,
    turns: TurnCredit,
    whole_B: Tensor,
    include_B: Tensor | None,
    outcomes: Outcomes,
) -> Tensor:
    turn_BT = _needed(outcomes.turn_BT, "turn_BT", "credit by turns")
    rewards_BK = _needed(outcomes.turn_rewards_BK, "turn_rewards_BK", "credit by turns")
    index_BK = torch.arange(rewards_BK.shape[1], device=rewards_BK.device).expand_as(rewards_BK)
    taken_BK = index_BK <= turn_BT.amax(-1, keepdim=True)
    returns_BK = discounted_returns(rewards_BK, taken_BK, gamma=turns.gamma)
    counted_BK = taken_BK if include_B is None else taken_BK & include_B[:, None]
    like_BK = index_BK
    if turns.groups == "state":
        like_BK = _needed(outcomes.state_BK, "state_BK", "credit by state")
    group_BK = outcomes.group_B[:, None].expand_as(rewards_BK)
    advantages_N = group_relative(
        returns_BK.flatten(),
        joint_ids(group_BK.flatten(), like_BK.flatten()),
        baseline=config.baseline,
        scale=config.scale,
        epsilon=config.epsilon,
        include_B=counted_BK.flatten(),
    )
    advantages_BK = advantages_N.view_as(rewards_BK)
    if turns.episode_weight:
        advantages_BK = advantages_BK + turns.episode_weight * whole_B[:, None]
    return spread_turns(advantages_BK, turn_BT)


def _token_rewards(algorithm: Algorithm, rewards_B: Tensor, outcomes: Outcomes) -> Tensor:
    """The reward of a rollout at its last drawn token, less the divergence at each. ``[B, T]``."""
    mask_BT = _needed(outcomes.mask_BT, "mask_BT", "credit by tokens").bool()
    position_T = torch.arange(mask_BT.shape[1], device=mask_BT.device)
    last_B = torch.where(mask_BT, position_T, -1).amax(-1)
    token_rewards_BT = torch.where(position_T == last_B[:, None], rewards_B[:, None], 0.0)
    divergence_BT = _divergence_BT(algorithm, outcomes)
    if algorithm.kl is None or divergence_BT is None:
        return token_rewards_BT
    return kl_in_reward(
        token_rewards_BT,
        divergence_BT.to(token_rewards_BT.dtype),
        mask_BT=mask_BT,
        coefficient=algorithm.kl.coefficient,
    )


def _token_advantages(
    config: ReturnAdvantage | GaeAdvantage, token_rewards_BT: Tensor, outcomes: Outcomes
) -> tuple[Tensor, Tensor | None]:
    mask_BT = _needed(outcomes.mask_BT, "mask_BT", "credit by tokens")
    if isinstance(config, ReturnAdvantage):
        return discounted_returns(token_rewards_BT, mask_BT, gamma=config.gamma), None
    return generalized_advantages(
        token_rewards_BT,
        _needed(outcomes.values_BT, "values_BT", "estimator gae").to(token_rewards_BT.dtype),
        mask_BT=mask_BT,
        gamma=config.gamma,
        lam=config.lam,
        last_value_B=outcomes.last_value_B,
    )


def _needed(tensor: Tensor | None, name: str, what: str) -> Tensor:
    if tensor is None:
        raise ValueError(f"{what} needs {name}")
    return tensor
