"""Real architectures, tiny and random: each goes through every stage that trains or samples.

The problems are the coins: two traces in three are right, so that the fine-tuned policy is right
sometimes and every later stage has something to learn.
"""

import pytest
import torch
import transformers as hf

from posttrain.data.schemas import CURVE, Completion, completions_table
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.stage.context import StageContext
from tasks.evaluate.config import EvaluateConfig
from tasks.evaluate.report import read_report
from tasks.evaluate.stage import run as evaluate
from tasks.import_model.config import ImportModelConfig
from tasks.import_model.stage import run as import_model
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe
from tasks.reward.config import RewardConfig
from tasks.reward.stage import run as reward
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run as rl
from tasks.sft.config import SftConfig
from tasks.sft.stage import run as sft

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
