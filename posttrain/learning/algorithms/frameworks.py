"""Presets as other frameworks define a name by their own defaults."""

from posttrain.learning.algorithms.advantages.group import GroupAdvantage
from posttrain.learning.algorithms.config import AggregationConfig, Algorithm
from posttrain.learning.algorithms.preset import Preset
from posttrain.learning.algorithms.regularizers.kl import KlRegularizer
from posttrain.learning.algorithms.surrogates.cispo import CispoSurrogate
from posttrain.learning.algorithms.surrogates.clip import ClipSurrogate
from posttrain.learning.algorithms.token_weights.importance import ImportanceWeight

_BY_TOKEN = AggregationConfig(kind="token_mean")
_TRL_ADVANTAGE = GroupAdvantage(baseline="mean", scale="sample", epsilon=1e-4)
_TRL_SOURCE = "TRL 1.16.0, trl/trainer/grpo_config.py and grpo_trainer.py"
_OPEN_INSTRUCT_SOURCE = (
    "open-instruct at e6c3044aa (August 2026), open_instruct/grpo_utils.py and data_loader.py"
)
_TRUNCATED = ImportanceWeight(bound="truncate", level="token", high=2.0)
_OPEN_INSTRUCT_KL = KlRegularizer(coefficient=0.05, place="loss", estimator="k3")

FRAMEWORK_METHODS: dict[str, Preset] = {
    "grpo_trl": Preset(
        algorithm=Algorithm(
            advantage=_TRL_ADVANTAGE,
            surrogate=ClipSurrogate(low=0.2, high=0.2),
            old_policy="recomputed",
            aggregation=_BY_TOKEN,
        ),
        equation=(
            "A = (r - mean_G r) / (std_G r + 1e-4)\n"
            "L = -1/Σ|o_i| Σ_i Σ_t min(ρ A, clip(ρ, 0.8, 1.2) A),  ρ to the recomputed policy"
        ),
        source=_TRL_SOURCE,
        note=(
            "GRPOConfig as it is: loss_type dapo, beta 0. With beta it adds k3 in the loss, ratio"
            " weighted. With vLLM it also drops sequences whose product of ratios exceeds 3:"
            " token_weights.importance {bound: mask, level: sequence_sum, low: 0, high: 3}."
        ),
    ),
    "cispo_trl": Preset(
        algorithm=Algorithm(
            advantage=_TRL_ADVANTAGE,
            surrogate=CispoSurrogate(bound="cap", high=5.0),
            old_policy="recomputed",
            aggregation=_BY_TOKEN,
        ),
        equation=(
            "A = (r - mean_G r) / (std_G r + 1e-4)\n"
            "L = -1/Σ|o_i| Σ_i Σ_t sg(min(ρ, 5)) A log π_t,  ρ to the recomputed policy"
        ),
        source=f"{_TRL_SOURCE}; the bound of ScaleRL, arXiv 2510.13786",
        note="loss_type cispo; epsilon_high is the largest ratio itself, 5 recommended.",
    ),
    "rloo_trl": Preset(
        algorithm=Algorithm(
            advantage=GroupAdvantage(baseline="leave_one_out", scale="none"),
            surrogate=ClipSurrogate(level="sequence_sum", low=0.2, high=0.2),
            old_policy="recomputed",
            aggregation=AggregationConfig(kind="sequence_mean_token_mean"),
            regularizers={"kl": KlRegularizer(coefficient=0.05, place="reward", estimator="k1")},
        ),
        equation=(
            "R = r - 0.05 log(π(o)/π_ref(o)),  A = R - mean of the other R of the group\n"
            "L = -1/B Σ_i min(s_i A, clip(s_i, 0.8, 1.2) A),  s_i = Π_t ρ_t"
        ),
        source="TRL 1.16.0, trl/trainer/rloo_config.py and rloo_trainer.py",
        note="RLOOConfig as it is; the paper's form is rloo.",
    ),
    "grpo_verl": Preset(
        algorithm=Algorithm(
            advantage=GroupAdvantage(baseline="mean", scale="sample", epsilon=1e-6),
            surrogate=ClipSurrogate(low=0.2, high=0.2, dual=3.0),
            old_policy="recomputed",
            aggregation=_BY_TOKEN,
            regularizers={
                "kl": KlRegularizer(coefficient=0.001, place="loss", estimator="k3", ceiling=10.0)
            },
        ),
        equation=(
            "A = (r - mean_G r) / (std_G r + 1e-6)\n"
            "L = 1/Σ|o_i| Σ_i Σ_t [dual(max(-ρ A, -clip(ρ, 0.8, 1.2) A)) + 0.001 k3(π, π_ref)],\n"
            "dual: at most -3 A where A < 0;  k3 at most 10;  ρ to the recomputed policy"
        ),
        source="verl at b178a3cd5 (January 2026), verl/trainer/ppo/core_algos.py,"
        " verl/trainer/config/actor/actor.yaml, docs/algo/grpo.md",
        note=(
            "adv_estimator grpo and use_kl_loss true, as its documentation of GRPO asks; both are"
            " off in its bare config. A group of one keeps its reward there, and gives 0 here."
        ),
    ),
    "grpo_open_instruct": Preset(
        algorithm=Algorithm(
            advantage=GroupAdvantage(baseline="mean", scale="none"),
            surrogate=ClipSurrogate(low=0.2, high=0.272),
            old_policy="recomputed",
            token_weights={"importance": _TRUNCATED},
            aggregation=_BY_TOKEN,
            regularizers={"kl": _OPEN_INSTRUCT_KL},
        ),
        equation=(
            "A = r - mean_G r,  w = min(π_old/π_engine, 2)\n"
            "L = -1/Σ|o_i| Σ_i Σ_t [w min(ρ A, clip(ρ, 0.8, 1.272) A) - 0.05 k3(π, π_ref)]"
        ),
        source=_OPEN_INSTRUCT_SOURCE,
        note=(
            "loss_fn dapo, advantage_normalization_type centered, kl_estimator 2 (its number for"
            " k3). Its option standard divides by the population deviation plus 1e-8."
        ),
    ),
    "cispo_open_instruct": Preset(
        algorithm=Algorithm(
            advantage=GroupAdvantage(baseline="mean", scale="none"),
            surrogate=CispoSurrogate(bound="upper", high=0.272),
            old_policy="recomputed",
            token_weights={"importance": _TRUNCATED},
            aggregation=_BY_TOKEN,
            regularizers={"kl": _OPEN_INSTRUCT_KL},
        ),
        equation=(
            "A = r - mean_G r,  w = min(π_old/π_engine, 2)\n"
            "L = -1/Σ|o_i| Σ_i Σ_t [w sg(min(ρ, 1.272)) A log π_t - 0.05 k3(π, π_ref)]"
        ),
        source=_OPEN_INSTRUCT_SOURCE,
        note="loss_fn cispo, all else as grpo_open_instruct.",
    ),
}
