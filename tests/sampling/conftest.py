"""A small tokenizer, random models of several architectures, and prompts of unequal length."""

import pytest
import torch
import transformers

from posttrain.models.logprobs import token_logprobs
from posttrain.models.tokenizer import train_tokenizer
from posttrain.sampling.base import Prompt

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    # Large weights, so that the distributions are far from uniform and a wrong one shows.
    "initializer_range": 0.3,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {**LLAMA3, "rope_type": "yarn", "factor": 4.0}
ARCHITECTURES = {
    "llama": ("Llama", {"num_key_value_heads": 4}),
    "llama-gqa-tied": ("Llama", {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "llama-mqa-rope3": ("Llama", {"num_key_value_heads": 1, "rope_parameters": LLAMA3}),
    "llama-yarn": ("Llama", {"num_key_value_heads": 4, "rope_parameters": YARN}),
    "qwen2": ("Qwen2", {"num_key_value_heads": 2}),
    "mistral-window": ("Mistral", {"num_key_value_heads": 2, "sliding_window": 8}),
    "gpt-neox": ("GPTNeoX", {}),
    "gemma-tied": ("Gemma", {"num_key_value_heads": 1, "head_dim": 32}),
}

# Heads of width 32, the narrowest that vLLM's attention on a CPU knows.
WIDE = {"hidden_size": 64, "num_attention_heads": 2, "initializer_range": 0.2}


def build_model(name, vocab_size, seed=0, **sizes):
    family, options = ARCHITECTURES[name]
    options = {**SIZES, **options, **sizes}
    config = getattr(transformers, f"{family}Config")(vocab_size=vocab_size, **options)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return getattr(transformers, f"{family}ForCausalLM")(config).eval()


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer(["2 + 3 = 5\n#### 5", "legs of a dog: 4\n#### 4"], vocab_size=270)


@pytest.fixture(scope="session")
def models(tokenizer):
    return {name: build_model(name, len(tokenizer)) for name in ARCHITECTURES}


@pytest.fixture(scope="session")
def prompts():
    generator = torch.Generator().manual_seed(3)
    lengths = [5, 11, 3, 20, 11, 7]
    return [
        Prompt(f"p{i}", tuple(torch.randint(3, 260, (n,), generator=generator).tolist()))
        for i, n in enumerate(lengths)
    ]


@pytest.fixture(scope="session")
def wide_model(tokenizer):
    """Builds a model that vLLM takes on a CPU too: `wide_model("qwen2", seed=3)`."""

    def build(name, seed=0):
        # Two heads of keys at most, as there are two of queries.
        heads = min(2, ARCHITECTURES[name][1].get("num_key_value_heads", 2))
        return build_model(name, len(tokenizer), seed, **WIDE, num_key_value_heads=heads)

    return build


@pytest.fixture(scope="session")
def trainer_logprobs():
    """What the trainer makes of a sample's tokens: `trainer_logprobs(model, prompt, sample, T)`."""

    def of(model, prompt, sample, temperature=1.0):
        ids = torch.tensor([prompt.token_ids + sample.token_ids])
        wanted = torch.arange(ids.shape[1])[None] >= len(prompt.token_ids)
        with torch.no_grad():
            found = token_logprobs(model, ids, wanted_BT=wanted, temperature=temperature)
        return found.logprobs_BT[0, len(prompt.token_ids) :]

    return of
