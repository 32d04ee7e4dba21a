"""From the ratio's switches to the surrogate of `maths.surrogates` that they name."""

from torch import Tensor

from posttrain.learning.algorithms.ratio_config import (
    CispoRatio,
    ClipRatio,
    GmpoRatio,
    RatioConfig,
    ReinforceRatio,
    SapoRatio,
)
from posttrain.learning.maths.ratios import RatioLevel, log_ratio
from posttrain.learning.maths.surrogates import (
    TokenLoss,
    cispo,
    clipped,
    geometric_mean,
    reinforce,
    soft_gated,
    squared,
)


def surrogate(
    config: RatioConfig,
    logprobs_BT: Tensor,
    advantages_BT: Tensor,
    *,
    log_ratio_BT: Tensor,
    mask_BT: Tensor,
) -> TokenLoss:
    """The loss of each token; `log_ratio_BT` is that of each token, with its gradient."""
    if isinstance(config, ReinforceRatio):
        return reinforce(logprobs_BT, advantages_BT)
    if isinstance(config, GmpoRatio):
        return geometric_mean(
            log_ratio_BT, advantages_BT, mask_BT=mask_BT, low=config.log_low, high=config.log_high
        )
    ratio_BT = _at_level(log_ratio_BT, mask_BT, config.level)
    if isinstance(config, ClipRatio):
        return clipped(ratio_BT, advantages_BT, low=config.low, high=config.high, dual=config.dual)
    if isinstance(config, CispoRatio):
        return cispo(
            logprobs_BT,
            advantages_BT,
            log_ratio_BT=ratio_BT,
            clip=config.bound,
            low=0.0 if config.low is None else config.low,
            high=config.high,
        )
    if isinstance(config, SapoRatio):
        return soft_gated(
            ratio_BT,
            advantages_BT,
            positive_tau=config.positive_tau,
            negative_tau=config.negative_tau,
        )
    return squared(ratio_BT, advantages_BT, tau=config.tau)


def _at_level(log_ratio_BT: Tensor, mask_BT: Tensor, level: RatioLevel) -> Tensor:
    """The tokens' log-ratios spread to a level; the same tensor where that is the tokens' own."""
    if level == "token":
        return log_ratio_BT
    return log_ratio(log_ratio_BT, log_ratio_BT.new_zeros(()), mask_BT=mask_BT, level=level)
