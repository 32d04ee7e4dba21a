"""Presets as the papers define them: REINFORCE and its kin, and PPO with a critic."""

from posttrain.learning.algorithms.advantages.gae import GaeAdvantage
from posttrain.learning.algorithms.advantages.group import GroupAdvantage
from posttrain.learning.algorithms.advantages.returns import ReturnAdvantage
from posttrain.learning.algorithms.config import AggregationConfig, Algorithm, CriticConfig
from posttrain.learning.algorithms.preset import Preset
from posttrain.learning.algorithms.regularizers.kl import KlRegularizer
from posttrain.learning.algorithms.surrogates.clip import ClipSurrogate
from posttrain.learning.algorithms.surrogates.reinforce import ReinforceSurrogate

_BY_TOKEN = AggregationConfig(kind="token_mean")
_WHOLE_SEQUENCES = AggregationConfig(kind="sequence_mean_token_sum")
_PPO_CLIP = ClipSurrogate(low=0.2, high=0.2)
_ON_POLICY = "No ratio: one update for each batch, or the gradient is wrong."

REINFORCE_METHODS: dict[str, Preset] = {
    "ppo": Preset(
        algorithm=Algorithm(
            advantage=GaeAdvantage(gamma=1.0, lam=0.95, whiten="sample"),
            surrogate=_PPO_CLIP,
            aggregation=_BY_TOKEN,
            regularizers={"kl": KlRegularizer(coefficient=0.05, place="reward", estimator="k1")},
            critic=CriticConfig(coefficient=0.1, clip=0.2),
        ),
        equation=(
            "δ_t = r_t - 0.05 log(π/π_ref) + V_t+1 - V_t,  A_t = whiten(Σ_k 0.95^k δ_t+k)\n"
            "L = -1/Σ|o_i| Σ_i Σ_t min(ρ A, clip(ρ, 0.8, 1.2) A)\n"
            "L_V = 0.1/Σ|o_i| Σ_i Σ_t ½ max((V - R)², (clip(V, V_old ± 0.2) - R)²)"
        ),
        source="Proximal Policy Optimization Algorithms; Schulman et al. 2017, arXiv 1707.06347;"
        " GAE: arXiv 1506.02438; for language models: Stiennon et al. 2020, arXiv 2009.01325",
        note=(
            "Coefficients as in TRL's PPO trainer, after OpenAI's summarization code. verl has"
            " lambda 1, value clip 0.5 and no KL. Without a reference: set it to null."
        ),
    ),
    "rloo": Preset(
        algorithm=Algorithm(
            advantage=GroupAdvantage(baseline="leave_one_out", scale="none"),
            surrogate=ReinforceSurrogate(),
            aggregation=_WHOLE_SEQUENCES,
            regularizers={"kl": KlRegularizer(coefficient=0.03, place="reward", estimator="k1")},
        ),
        equation=(
            "R = r - 0.03 log(π(o)/π_ref(o)),  A = R - mean of the other R of the group\n"
            "L = -1/B Σ_i A Σ_t log π_t"
        ),
        source="Back to Basics; Ahmadian et al. 2024, arXiv 2402.14740; Kool et al. 2019",
        note=(
            f"{_ON_POLICY} The whole completion is one action. TRL clips the ratio of"
            " the sequence instead, with KL 0.05. Without a reference: set it to null."
        ),
    ),
    "reinforce": Preset(
        algorithm=Algorithm(
            advantage=GroupAdvantage(baseline="none", scale="none"),
            surrogate=ReinforceSurrogate(),
            aggregation=_WHOLE_SEQUENCES,
        ),
        equation="A = r\nL = -1/B Σ_i A Σ_t log π_t",
        source="Simple statistical gradient-following algorithms; Williams 1992",
        note=f"{_ON_POLICY} No baseline: advantage.baseline leave_one_out makes it RLOO.",
    ),
    "reinforce_plus_plus": Preset(
        algorithm=Algorithm(
            advantage=ReturnAdvantage(gamma=1.0, whiten="population"),
            surrogate=_PPO_CLIP,
            aggregation=_BY_TOKEN,
            regularizers={"kl": KlRegularizer(coefficient=0.01, place="reward", estimator="k1")},
        ),
        equation=(
            "A_t = whiten(r - 0.01 Σ_{k >= t} log(π/π_ref)) over all tokens of the batch\n"
            "L = -1/Σ|o_i| Σ_i Σ_t min(ρ A, clip(ρ, 0.8, 1.2) A)"
        ),
        source="REINFORCE++; Hu et al. 2025, arXiv 2501.03262",
        note=(
            "One rollout for each problem is enough. Deviation by n as in the authors' OpenRLHF;"
            " verl has n - 1. The KL coefficient is a choice. Without a reference: set it to null."
        ),
    ),
    "reinforce_plus_plus_baseline": Preset(
        algorithm=Algorithm(
            advantage=GroupAdvantage(baseline="mean", scale="none", whiten="population"),
            surrogate=_PPO_CLIP,
            aggregation=_BY_TOKEN,
            regularizers={"kl": KlRegularizer(coefficient=0.001, place="loss", estimator="k2")},
        ),
        equation=(
            "A = whiten(r - mean_G r) over all tokens of the batch\n"
            "L = -1/Σ|o_i| Σ_i Σ_t [min(ρ A, clip(ρ, 0.8, 1.2) A) - 0.001 k2(π, π_ref)]"
        ),
        source="REINFORCE++; Hu et al. 2025, arXiv 2501.03262",
        note=(
            "k2 in the loss has the gradient of the reverse KL, on-policy. Deviation by n as in"
            " OpenRLHF; verl has n - 1. The KL coefficient is a choice."
            " Without a reference: set it to null."
        ),
    ),
    "nsr": Preset(
        algorithm=Algorithm(
            advantage=GroupAdvantage(
                baseline="none", offset=0.5, positive_weight=0.0, negative_weight=2.0
            ),
            surrogate=ReinforceSurrogate(),
            aggregation=_BY_TOKEN,
        ),
        equation="A = -1 if wrong, 0 if right\nL = -1/Σ|o_i| Σ_i Σ_t A log π_t",
        source="The Surprising Effectiveness of Negative Reinforcement in LLM Reasoning;"
        " Zhu et al. 2025, arXiv 2506.01347",
        note=f"{_ON_POLICY} For rewards of 0 and 1, here 2 (r - 0.5). Aggregation is a choice.",
    ),
    "w_reinforce": Preset(
        algorithm=Algorithm(
            advantage=GroupAdvantage(
                baseline="none", offset=0.5, positive_weight=0.2, negative_weight=2.0
            ),
            surrogate=ReinforceSurrogate(),
            aggregation=_BY_TOKEN,
        ),
        equation="A = -1 if wrong, 0.1 if right\nL = -1/Σ|o_i| Σ_i Σ_t A log π_t",
        source="The Surprising Effectiveness of Negative Reinforcement in LLM Reasoning;"
        " Zhu et al. 2025, arXiv 2506.01347",
        note=f"{_ON_POLICY} For rewards of 0 and 1, here 2 (r - 0.5). Aggregation is a choice.",
    ),
}
