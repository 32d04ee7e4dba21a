import math

import pytest
import torch
import transformers as hf

from posttrain.learning.models import logprobs
from posttrain.learning.models.final_logits import FinalLogits, final_logits
from posttrain.learning.models.logprobs import token_logprobs

SIZES = {
    "vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.5,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GEMMA = {"head_dim": 8, "final_logit_softcapping": 0.5}
CONFIGS = {
    "gemma2": (hf.Gemma2Config(**SIZES, **GEMMA), FinalLogits(1.0, 0.5)),
    "gemma3": (hf.Gemma3TextConfig(**SIZES, **GEMMA), FinalLogits(1.0, 0.5)),
    "cohere": (hf.CohereConfig(**SIZES, logit_scale=4.0), FinalLogits(4.0)),
    "cohere2": (hf.Cohere2Config(**SIZES, logit_scale=0.25), FinalLogits(0.25)),
    "granite": (hf.GraniteConfig(**SIZES, logits_scaling=8.0), FinalLogits(1 / 8)),
    "llama": (hf.LlamaConfig(**SIZES), FinalLogits()),
    # What the architecture has not, transformers keeps in the config and does not compute.
    "llama, stray": (
        hf.LlamaConfig(
            **SIZES,
            logit_scale=4.0,
            logits_scaling=8.0,
            final_logit_softcapping=0.5,
            logits_soft_cap=0.5,
            lm_head_multiplier=3.0,
        ),
        FinalLogits(),
    ),
    # Its scaling is a property: hidden size over the size that it was tuned at.
    "minicpm3": (
        hf.MiniCPM3Config(
            **SIZES,
            dim_model_base=4,
            q_lora_rank=8,
            kv_lora_rank=8,
            qk_nope_head_dim=4,
            qk_rope_head_dim=4,
            v_head_dim=8,
        ),
        FinalLogits(1 / 4),
    ),
}


def test_scale_comes_before_cap():
    final = FinalLogits(scale=2.0, cap=3.0)
    assert final(torch.tensor([1.5])).item() == pytest.approx(3 * math.tanh(1.0))
    assert not final.changes_nothing
    assert FinalLogits().changes_nothing


@pytest.mark.parametrize("chunk_elements", [150, 1 << 24])
@pytest.mark.parametrize("name", CONFIGS)
def test_values_entropy_and_gradient_are_those_of_the_models_own_logits(
    name, chunk_elements, monkeypatch
):
    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", chunk_elements)
    config, stated = CONFIGS[name]
    assert final_logits(config) == stated
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    ids = torch.randint(3, 50, (3, 7), generator=torch.Generator().manual_seed(1))
    wanted = torch.ones_like(ids, dtype=torch.bool)
    wanted[:, 0] = False

    # Through transformers' own forward; the temperature divides what is capped.
    logp = (model(input_ids=ids).logits[:, :-1] / 0.7).log_softmax(-1)
    taken = logp.gather(-1, ids[:, 1:, None])[..., 0]
    taken.sum().backward()
    expected = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    found = token_logprobs(
        model, ids, wanted_BT=wanted, temperature=0.7, with_entropy=True,
    )  # fmt: skip
    found.logprobs_BT.sum().backward()

    torch.testing.assert_close(found.logprobs_BT[:, 1:], taken, atol=1e-5, rtol=1e-5)
    entropy = -(logp.exp() * logp).sum(-1)
    torch.testing.assert_close(found.entropy_BT[:, 1:], entropy, atol=1e-5, rtol=1e-5)
    for parameter, gradient in expected.items():
        torch.testing.assert_close(
            model.get_parameter(parameter).grad, gradient, atol=1e-4, rtol=1e-4
        )
