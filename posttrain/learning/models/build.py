"""Build a small Llama from scratch."""

from typing import TYPE_CHECKING

import torch

from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerBase


def build_llama(
    tokenizer: "PreTrainedTokenizerBase",
    *,
    hidden: int,
    layers: int,
    heads: int,
    seed: int,
    max_length: int = 512,
) -> "LlamaForCausalLM":
    """Build a Llama with tied embeddings and random weights that depend on `seed` alone.

    Args:
        tokenizer: Gives the size of the vocabulary, and the ids of the special tokens.
        hidden: Width of the residual stream; the MLP is twice as wide.
        layers: Number of blocks.
        heads: Attention heads of a block, each with keys and values of its own.
        seed: Of the weights; torch's own generator is left as it was.
        max_length: Most positions, in tokens.

    Returns:
        The model in float32, on the CPU.

    Raises:
        UserError: `hidden` does not split into heads of an even width, which rotary positions need.

    """
    from transformers import LlamaConfig, LlamaForCausalLM

    if hidden % heads or (hidden // heads) % 2:
        raise UserError(
            f"hidden size {hidden} does not split into {heads} heads of an even width; "
            "choose hidden as an even multiple of heads"
        )
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    # What a stage draws later must not depend on a model having been built before.
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)
