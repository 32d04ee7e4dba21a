"""Presets as the papers define them: group advantages and their surrogates."""

from posttrain.learning.algorithms.advantages.group import GroupAdvantage
from posttrain.learning.algorithms.config import AggregationConfig, Algorithm, OverlongConfig
from posttrain.learning.algorithms.preset import Preset
from posttrain.learning.algorithms.regularizers.kl import KlRegularizer
from posttrain.learning.algorithms.surrogates.cispo import CispoSurrogate
from posttrain.learning.algorithms.surrogates.clip import ClipSurrogate
from posttrain.learning.algorithms.surrogates.gmpo import GmpoSurrogate
from posttrain.learning.algorithms.surrogates.sapo import SapoSurrogate
from posttrain.learning.algorithms.surrogates.squared import SquaredSurrogate

_STANDARDIZED = GroupAdvantage(baseline="mean", scale="sample", epsilon=0.0)
_CENTERED = GroupAdvantage(baseline="mean", scale="none")
_BY_SEQUENCE = AggregationConfig(kind="sequence_mean_token_mean")
_BY_TOKEN = AggregationConfig(kind="token_mean")
_PPO_CLIP = ClipSurrogate(low=0.2, high=0.2)
_DEVIATION = "The paper does not say whether the deviation divides by n - 1 or n; here n - 1."

GROUP_METHODS: dict[str, Preset] = {
    "grpo": Preset(
        algorithm=Algorithm(
            advantage=_STANDARDIZED,
            surrogate=_PPO_CLIP,
            aggregation=_BY_SEQUENCE,
            regularizers={"kl": KlRegularizer(coefficient=0.04, place="loss", estimator="k3")},
        ),
        equation=(
            "A = (r - mean_G r) / std_G r\n"
            "L = -1/B Σ_i 1/|o_i| Σ_t [min(ρ A, clip(ρ, 0.8, 1.2) A) - 0.04 k3(π, π_ref)]"
        ),
        source="DeepSeekMath; Shao et al. 2024, arXiv 2402.03300, section 4.1",
        note=(
            f"{_DEVIATION} It states KL 0.04 but no clip range; 0.2 is PPO's."
            " Plain k3 in the loss descends the forward KL: ratio_weighted makes it exact."
        ),
    ),
    "dr_grpo": Preset(
        algorithm=Algorithm(
            advantage=_CENTERED,
            surrogate=_PPO_CLIP,
            aggregation=AggregationConfig(kind="constant_length"),
        ),
        equation="A = r - mean_G r\nL = -1/(B L_max) Σ_i Σ_t min(ρ A, clip(ρ, 0.8, 1.2) A)",
        source="Understanding R1-Zero-Like Training; Liu et al. 2025, arXiv 2503.20783",
        note=(
            "L_max is the limit of generation (the stage's max_tokens), never the width of a"
            " batch, as verl has it unless told otherwise. No KL."
        ),
    ),
    "dapo": Preset(
        algorithm=Algorithm(
            advantage=GroupAdvantage(
                baseline="mean", scale="sample", epsilon=0.0, truncated="mask"
            ),
            surrogate=ClipSurrogate(low=0.2, high=0.28),
            aggregation=_BY_TOKEN,
            overlong=OverlongConfig(share=0.2),
        ),
        equation=(
            "A = (r - mean_G r) / std_G r,  r less a penalty over the last fifth of the limit\n"
            "L = -1/Σ|o_i| Σ_i Σ_t min(ρ A, clip(ρ, 0.8, 1.28) A)"
        ),
        source="DAPO; Yu et al. 2025, arXiv 2503.14476",
        note=(
            f"{_DEVIATION} Dynamic sampling, its fourth part, is a switch of the stage."
            " The penalty's share of the limit is the paper's 4096 of 20480 tokens; rollouts that"
            " were cut off bear no loss (overlong filtering)."
        ),
    ),
    "gspo": Preset(
        algorithm=Algorithm(
            advantage=_STANDARDIZED,
            surrogate=ClipSurrogate(level="sequence_mean", low=3e-4, high=4e-4),
            aggregation=_BY_SEQUENCE,
        ),
        equation=(
            "s_i = exp(1/|o_i| Σ_t log ρ_t),  A = (r - mean_G r) / std_G r\n"
            "L = -1/B Σ_i min(s_i A, clip(s_i, 1 - 3e-4, 1 + 4e-4) A)"
        ),
        source="Group Sequence Policy Optimization; Zheng et al. 2025, arXiv 2507.18071",
        note=(
            f"{_DEVIATION} The range is for ratios of sequences: of tokens it would clip nearly"
            " all. AReaL takes the mean over tokens instead. No effect at ratio 1."
        ),
    ),
    "gspo_token": Preset(
        algorithm=Algorithm(
            advantage=_STANDARDIZED,
            surrogate=ClipSurrogate(level="sequence_token", low=3e-4, high=4e-4),
            aggregation=_BY_SEQUENCE,
        ),
        equation=(
            "s_it = sg(s_i) π_t / sg(π_t),  s_i as in GSPO\n"
            "L = -1/B Σ_i 1/|o_i| Σ_t min(s_it A_t, clip(s_it, 1 - 3e-4, 1 + 4e-4) A_t)"
        ),
        source="Group Sequence Policy Optimization; Zheng et al. 2025, arXiv 2507.18071, 4.3",
        note=(
            "Value and gradient are GSPO's where all tokens of a rollout share an advantage; it is"
            " for advantages by turn or token. verl's gspo is this form."
        ),
    ),
    "cispo": Preset(
        algorithm=Algorithm(
            advantage=_STANDARDIZED,
            surrogate=CispoSurrogate(bound="upper", high=0.2),
            aggregation=_BY_TOKEN,
        ),
        equation=(
            "A = (r - mean_G r) / std_G r\nL = -1/Σ|o_i| Σ_i Σ_t sg(min(ρ, 1 + 0.2)) A log π_t"
        ),
        source="MiniMax-M1; MiniMax 2025, arXiv 2506.13585",
        note=(
            "The paper writes clip(ρ, 1 - low, 1 + high) with low so large that nothing is bounded"
            " below, and does not state high; 0.2 is that of verl's example, which also opens the"
            f" lower side. TRL bounds by high itself: see cispo_trl. {_DEVIATION}"
        ),
    ),
    "lite_ppo": Preset(
        algorithm=Algorithm(
            advantage=GroupAdvantage(baseline="mean", scale="batch_sample", epsilon=1e-6),
            surrogate=_PPO_CLIP,
            aggregation=_BY_TOKEN,
        ),
        equation=(
            "A = (r - mean_G r) / std_batch r\nL = -1/Σ|o_i| Σ_i Σ_t min(ρ A, clip(ρ, 0.8, 1.2) A)"
        ),
        source="Part I: Tricks or Traps? A Deep Dive into RL for LLM Reasoning; Liu et al. 2025,"
        " arXiv 2508.08221",
        note=(
            "The deviation is that of the rewards of the whole batch, not of the centred ones (that"
            " is REINFORCE++'s baseline variant). Without a critic, despite the name."
        ),
    ),
    "maxrl": Preset(
        algorithm=Algorithm(
            advantage=GroupAdvantage(baseline="mean", scale="mean", epsilon=1e-6),
            surrogate=_PPO_CLIP,
            aggregation=_BY_TOKEN,
        ),
        equation=(
            "A = (r - mean_G r) / mean_G r, and 0 without a success\n"
            "L = -1/Σ|o_i| Σ_i Σ_t min(ρ A, clip(ρ, 0.8, 1.2) A)"
        ),
        source="Maximum Likelihood Reinforcement Learning; Tajwar et al. 2026, arXiv 2602.02710",
        note=(
            "Needs rewards >= 0. The paper gives the advantage and no epsilon; 1e-6 is SkyRL's;"
            " clip and aggregation are common choices, of no effect on-policy but for the mean."
        ),
    ),
    "sapo": Preset(
        algorithm=Algorithm(
            advantage=_STANDARDIZED,
            surrogate=SapoSurrogate(positive_tau=1.0, negative_tau=1.05),
            aggregation=_BY_SEQUENCE,
        ),
        equation=(
            "A = (r - mean_G r) / std_G r,  τ = 1.0 if A > 0 else 1.05\n"
            "L = -1/B Σ_i 1/|o_i| Σ_t (4/τ) σ(τ (ρ - 1)) A"
        ),
        source="Soft Adaptive Policy Optimization; Gao et al. 2025, arXiv 2511.20347",
        note=f"{_DEVIATION} The gradient at ratio 1 is REINFORCE's for every τ.",
    ),
    "gmpo": Preset(
        algorithm=Algorithm(
            advantage=_STANDARDIZED,
            surrogate=GmpoSurrogate(log_low=0.4, log_high=0.4),
            aggregation=_BY_SEQUENCE,
        ),
        equation=(
            "A = (r - mean_G r) / std_G r\n"
            "L = -1/B Σ_i A exp(1/|o_i| Σ_t bounded(log ρ_t)), above at 0.4 if A > 0, else below"
        ),
        source="Geometric-Mean Policy Optimization; Zhao et al. 2025, arXiv 2507.20673",
        note=f"{_DEVIATION} The bounds are those of the logarithm of the ratio.",
    ),
    "kimi": Preset(
        algorithm=Algorithm(
            advantage=_CENTERED,
            surrogate=SquaredSurrogate(level="sequence_sum", tau=0.1),
            aggregation=_BY_SEQUENCE,
        ),
        equation="A = r - mean_G r\nL = 1/B Σ_i [-A l_i + τ/2 l_i²],  l_i = Σ_t log ρ_t,  τ = 0.1",
        source="Kimi k1.5; Kimi Team 2025, arXiv 2501.12599, section 2.3.2",
        note=(
            "Online policy mirror descent with the mean reward for its log-partition. The paper"
            " does not state τ; 0.1 is a choice. Its length reward is no part of this."
        ),
    ),
}
