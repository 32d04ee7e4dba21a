"""A tiny random Qwen2 with a chat template, in the place of weights that recipes name."""

from collections.abc import Iterable
from pathlib import Path

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save_tiny_qwen(
    path: Path, texts: Iterable[str], *, max_length: int = 512, seed: int = 0
) -> None:
    """Save one whose tokenizer knows what the texts are made of."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from posttrain.learning.models.load import save_policy
    from posttrain.learning.models.tokenizer import train_tokenizer

    tokenizer = train_tokenizer(texts, vocab_size=400)
    tokenizer.add_special_tokens(
        {"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]}
    )
    tokenizer.chat_template = CHAT
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=max_length,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    save_policy(Qwen2ForCausalLM(config), tokenizer, path)
