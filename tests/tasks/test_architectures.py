"""Real architectures, tiny and random: each goes through every stage that trains or samples.

The problems are the coins: two traces in three are right, so that the fine-tuned policy is right
sometimes and every later stage has something to learn.
"""

import pytest
import torch
import transformers as hf

from posttrain.data.schemas import CURVE, Completion, completions_table
from posttrain.data.tables import read_table
from posttrain.learning.models.architectures import NOT_DRAWN
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.stage.context import StageContext
from tasks.evaluate.config import EvaluateConfig
from tasks.evaluate.report import read_report
from tasks.evaluate.stage import run as evaluate
from tasks.import_model.config import ImportModelConfig
from tasks.import_model.stage import run as import_model
from tasks.preference import TASK as PREFERENCE
from tasks.preference.stage import run as preference
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe
from tasks.reward.config import RewardConfig
from tasks.reward.stage import run as reward
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run as rl
from tasks.sft.config import SftConfig
from tasks.sft.stage import run as sft
from tests.architectures import ARCHITECTURES, config_of
from tests.quick import first_now

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
CONFIGS = {
    "llama": hf.LlamaConfig(**GROUPED, attention_bias=True),
    "qwen2": hf.Qwen2Config(**GROUPED, tie_word_embeddings=True),
    "qwen3": hf.Qwen3Config(**GROUPED, head_dim=16),
    "gemma": hf.GemmaConfig(**GROUPED, head_dim=8),
    "gpt_neox": hf.GPTNeoXConfig(**SIZES, rotary_pct=0.25),
    "mistral": hf.MistralConfig(**GROUPED, sliding_window=16),
    "gemma2": hf.Gemma2Config(
        **GROUPED, head_dim=8, sliding_window=16, final_logit_softcapping=8.0
    ),
    "gemma3": hf.Gemma3TextConfig(**GROUPED, head_dim=8, sliding_window=16),
    "phi3": hf.Phi3Config(**GROUPED),
    "olmo2": hf.Olmo2Config(**GROUPED),
    "cohere": hf.CohereConfig(**GROUPED, logit_scale=2.0),
    "granite": hf.GraniteConfig(**GROUPED, logits_scaling=0.5),
}
# One that changes its logits and attends to a window; the plain one is that of all other tests.
# A mixture of experts first, as it has all that a dense one has.
EVERY = first_now(["qwen3_moe", *sorted({*ARCHITECTURES} - {"qwen3_moe"})])
AT_EVERY_CHANGE = ("gemma2",)


@pytest.fixture(scope="module")
def tokenizer(coins):
    return train_tokenizer([p.prompt for p in coins] + ["#### 1", "#### 2"], vocab_size=280)


@pytest.fixture
def step(tmp_path):
    """Run one stage into a folder of its own; returns the paths of its outputs."""

    def run(stage, config, inputs, **files):
        folder = tmp_path / stage.__module__.replace(".stage", "")
        outputs = {name: folder / file for name, file in files.items()}
        folder.mkdir()
        stage(config, inputs, outputs, StageContext.quiet(folder / "scratch"))
        return outputs

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    "architecture",
    [
        pytest.param(name, marks=pytest.mark.core if name in AT_EVERY_CHANGE else ())
        for name in CONFIGS
    ],
)
def test_it_is_imported_tuned_rewarded_reinforced_and_evaluated(
    architecture, tokenizer, coins, coins_path, write, step, tmp_path
):
    config = CONFIGS[architecture]
    config.update(
        {"vocab_size": len(tokenizer), "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    )
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(config)
    save_policy(model, tokenizer, tmp_path / "model")

    given = {"files.model": tmp_path / "model"}
    taken = step(
        import_model, ImportModelConfig(path="model"), given, policy="policy", report="report.json"
    )
    base = taken["policy"]
    assert weights_digest(load_policy(base).model) == weights_digest(model)

    traces = [
        Completion(coin, f"#### {answer}", "teacher", 1.0, True, "correct")
        for coin in coins
        for answer in ("1", "2", coin.answer)
    ]
    taught = step(
        sft,
        SftConfig(steps=100, batch_tokens=1024, optimization={"learning_rate": 5e-3}),
        {"policy": base, "traces": write(completions_table(traces))},
        policy="policy",
        curve="curve.parquet",
    )
    probed = step(
        probe,
        ProbeConfig(max_tokens=8, num_samples=6),
        {"policy": taught["policy"], "problems": coins_path},
        samples="samples.parquet",
        solve_rates="solve_rates.parquet",
    )
    ranked = step(
        reward,
        RewardConfig(steps=4),
        {"policy": taught["policy"], "samples": probed["samples"]},
        reward_model="reward_model",
        pairs="pairs.parquet",
        curve="curve.parquet",
        report="report.json",
    )
    improved = step(
        rl,
        RlStageConfig(
            steps=40, problems_per_step=16, group_size=6, max_tokens=8,
            optimization={"optimizer": "adamw", "learning_rate": 3e-3}, max_logprob_gap=1e-4,
        ),
        {
            "policy": taught["policy"],
            "problems": coins_path,
            "solve_rates": probed["solve_rates"],
        },
        policy="policy",
        rollouts="rollouts.parquet",
        curve="curve.parquet",
        report="report.json",
    )  # fmt: skip
    graded = step(
        evaluate,
        EvaluateConfig(max_tokens=8, num_samples=4, pass_at=(1, 4)),
        {
            "problems": coins_path,
            "policies.sft": taught["policy"],
            "policies.rl": improved["policy"],
            "reward_model": ranked["reward_model"],
        },
        report="report.json",
        completions="completions.parquet",
    )

    # The gap is the proof that engine and learner compute the same model.
    curve = read_table(improved["curve"], CURVE)
    gaps = curve.filter(metric="rl/logprob_gap")["value"].to_list()
    assert len(gaps) > 20, "hardly any group had signal"
    assert max(gaps) < 1e-5
    before, after = (policy.pass_at[0].value for policy in read_report(graded["report"]).policies)
    assert 0.3 < before < 0.9
    assert after > before
    plain = hf.AutoModelForCausalLM.from_pretrained(improved["policy"])
    assert type(plain) is type(model)
    assert weights_digest(plain) == weights_digest(load_policy(improved["policy"]).model)


@pytest.mark.parametrize("name", EVERY)
def test_every_architecture_takes_a_step_of_every_learner(
    name, tokenizer, coins, coins_path, write, step, tmp_path
):
    config = config_of(name)
    config.update({"vocab_size": len(tokenizer), "initializer_range": 0.02})
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(config)
    # Many end tokens, so that answers differ in length, which is rewarded below.
    model.generation_config.eos_token_id = list(range(2, 80))
    save_policy(model, tokenizer, tmp_path / "model")
    given = {"files.model": tmp_path / "model"}
    taken = step(
        import_model, ImportModelConfig(path="model"), given, policy="policy", report="report.json"
    )
    mixture = {"router_loss": 0.01} if hasattr(config, "router_aux_loss_coef") else {}
    if name in ("ernie4_5_moe", "minimax_m2"):
        mixture = {}  # they balance by a bias
    traces = completions_table(
        [
            Completion(coin, f"#### {answer}", "teacher", 1.0, right, "correct")
            for coin in coins
            for answer, right in ((coin.answer, True), ("3", False))
        ]
    )
    short = {"learning_rate": 1e-3, "warmup_steps": 1}
    taught = step(
        sft,
        SftConfig(steps=2, batch_tokens=256, micro_batch_tokens=128, optimization=short,
                  learner=mixture, require_verified=False),
        {"policy": taken["policy"], "traces": write(traces)},
        policy="policy",
        curve="curve.parquet",
    )  # fmt: skip
    if model.config.model_type in NOT_DRAWN:
        return  # what follows draws, the divergence in a report of preferences too
    preferred = step(
        preference,
        PREFERENCE.config(epochs=1.0, batch_tokens=512, optimization=short, learner=mixture),
        {"policy": taught["policy"], "samples": write(traces)},
        policy="policy",
        pairs="pairs.parquet",
        curve="curve.parquet",
        report="report.json",
    )
    brief = {"correct": "verifier", "brief": {"kind": "shortness", "scale": 0.1}}
    improved = step(
        rl,
        RlStageConfig(
            steps=2, problems_per_step=4, group_size=4, max_tokens=8, max_logprob_gap=1e-4,
            optimization={"optimizer": "adamw", "learning_rate": 1e-3}, learner=mixture,
            reward={"components": brief, "bonus_may_outweigh": True},
            updates={"micro_batch_tokens": 64},
        ),
        {"policy": preferred["policy"], "problems": coins_path},
        policy="policy",
        rollouts="rollouts.parquet",
        curve="curve.parquet",
        report="report.json",
    )  # fmt: skip
    curves = [read_table(each["curve"], CURVE) for each in (taught, preferred, improved)]
    for curve, stage in zip(curves, ("sft", "preference", "rl"), strict=True):
        assert len(curve.filter(metric=f"{stage}/grad_norm")) >= 1
        balance = curve.filter(metric=f"{stage}/router_loss")["value"].to_list()
        assert bool(balance) == bool(mixture)
        # As many experts as a token goes to where they are even, four where all go to one.
        assert all(0.9 * config.num_experts_per_tok < value < 4 for value in balance)
    assert max(curves[2].filter(metric="rl/grad_norm")["value"]) > 0
    weights = [weights_digest(load_policy(each["policy"]).model)
               for each in (taken, taught, preferred, improved)]  # fmt: skip
    assert len(set(weights)) == 4
    again = hf.AutoModelForCausalLM.from_pretrained(improved["policy"])
    assert type(again) is type(model)
