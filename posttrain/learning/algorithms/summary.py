"""An algorithm in a line, for lists and logs. What identifies it is its digest, not this line."""

from posttrain.learning.algorithms.advantage_config import GaeAdvantage, GroupAdvantage
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.preference import PreferenceAlgorithm
from posttrain.learning.algorithms.ratio_config import (
    CispoRatio,
    ClipRatio,
    GmpoRatio,
    RatioConfig,
    SapoRatio,
    SquaredRatio,
)


def summary(algorithm: Algorithm) -> str:
    """``mean/sample · clip token -0.2 +0.28 · token_mean · k3 0.04 in loss``."""
    parts = [_advantage(algorithm), _ratio(algorithm.ratio), algorithm.aggregation.kind]
    if algorithm.correction.old != "sampler":
        parts.append(f"old {algorithm.correction.old}")
    if weights := algorithm.correction.weights:
        parts.append(f"{weights.bound} {weights.level} weights")
    if kl := algorithm.kl:
        weighted = "ratio x " if kl.ratio_weighted else ""
        parts.append(f"{weighted}{kl.estimator} {kl.coefficient:g} in {kl.place}")
    if algorithm.entropy is not None:
        parts.append(f"entropy {algorithm.entropy.coefficient:g}")
    if algorithm.critic is not None:
        parts.append("critic")
    if algorithm.overlong is not None:
        parts.append("length penalty")
    return " · ".join(parts)


def preference_summary(algorithm: PreferenceAlgorithm) -> str:
    """``sigmoid β 0.1 · smoothing 0.1 · sums``."""
    parts = [f"{algorithm.loss} β {algorithm.beta:g}"]
    if algorithm.label_smoothing:
        parts.append(f"smoothing {algorithm.label_smoothing:g}")
    parts.append("per token" if algorithm.per_token else "sums")
    if algorithm.length_alpha < 1:
        parts.append(f"surplus tokens x{algorithm.length_alpha:g}")
    if algorithm.target_margin:
        parts.append(f"margin {algorithm.target_margin:g}")
    if algorithm.undesirable_weight != 1:
        parts.append(f"rejected x{algorithm.undesirable_weight:g}")
    if algorithm.sft_coefficient:
        parts.append(f"SFT {algorithm.sft_coefficient:g}")
    if algorithm.optimism_coefficient:
        parts.append(f"optimism {algorithm.optimism_coefficient:g}")
    return " · ".join(parts)


def _advantage(algorithm: Algorithm) -> str:
    advantage = algorithm.advantage
    if isinstance(advantage, GroupAdvantage):
        name = f"{advantage.baseline}/{advantage.scale}"
        name += " by turns" if advantage.turns else ""
    elif isinstance(advantage, GaeAdvantage):
        name = f"gae {advantage.gamma:g} {advantage.lam:g}"
    else:
        name = f"returns {advantage.gamma:g}"
    if advantage.whiten != "none":
        name += " whitened"
    if (advantage.positive_weight, advantage.negative_weight) != (1.0, 1.0):
        name += f" x{advantage.positive_weight:g} good x{advantage.negative_weight:g} bad"
    return name if advantage.truncated == "keep" else f"{name}, truncated {advantage.truncated}"


def _ratio(ratio: RatioConfig) -> str:
    if isinstance(ratio, ClipRatio):
        dual = "" if ratio.dual is None else f" dual {ratio.dual:g}"
        return f"clip {ratio.level} -{ratio.low:g} +{ratio.high:g}{dual}"
    if isinstance(ratio, CispoRatio):
        low = "" if ratio.low is None else f"-{ratio.low:g} "
        return f"cispo {ratio.level} {ratio.bound} {low}{ratio.high:g}"
    if isinstance(ratio, SapoRatio):
        return f"sapo {ratio.level} {ratio.positive_tau:g} {ratio.negative_tau:g}"
    if isinstance(ratio, GmpoRatio):
        return f"gmpo -{ratio.log_low:g} +{ratio.log_high:g}"
    if isinstance(ratio, SquaredRatio):
        return f"squared {ratio.level} {ratio.tau:g}"
    return "reinforce"
