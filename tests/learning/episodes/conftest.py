"""A tokenizer, a random policy with large weights, and problems to play about."""

import pytest
import torch
import transformers

from posttrain.data.schemas import Problem
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rollouts.engines.base import SamplingParams
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine
from posttrain.learning.rollouts.scoring import make_prompts

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def small_tokenizer(template=""):
    made = train_tokenizer(["2 + 3 = 5\n#### 5", "legs of a dog: 4\n#### 4"], vocab_size=270)
    if template:
        made.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
        made.chat_template = template
    return made


@pytest.fixture(scope="session", params=["plain", "chatml"])
def tokenizer(request):
    return small_tokenizer(CHATML if request.param == "chatml" else "")


@pytest.fixture(scope="session")
def model(tokenizer):
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=160, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, initializer_range=0.1,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="session")
def engine(model, tokenizer):
    return TorchRolloutEngine(model, tokenizer, batch_size=64)


@pytest.fixture(scope="session")
def problems():
    return [Problem("sums", f"{n} + {n + 1} =", str(2 * n + 1), 1, "exact") for n in range(5)]


@pytest.fixture(scope="session")
def prompts(tokenizer, problems):
    return make_prompts(tokenizer, problems)


@pytest.fixture(scope="session")
def params():
    return SamplingParams(max_tokens=6, num_samples=3, seed=11)
