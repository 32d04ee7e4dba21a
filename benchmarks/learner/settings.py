"""Models and data that both sides of the comparison are given: same weights, same tokens."""

import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

END = "<end>"
PAD = "<pad>"
SPECIAL = (PAD, END, "<unk>")


@dataclass(frozen=True)
class Size:
    """A model from random weights, and how long its rows are."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    new_tokens: int
    """Tokens of every completion that RL draws."""
    parameters: int
    positions: int = 512
    packed: tuple[int, int] = (16, 512)
    """Rows that are packed into one, and tokens of each."""
    rows: tuple[int, ...] = (64,) * 16
    """Tokens of each row of fine-tuning, which are padded or not, as a side does it."""
    pairs: tuple[int, int] = (8, 48)
    """Pairs, and tokens of each of their sides."""
    prompt: int = 16
    """Tokens of each prompt."""
    groups: tuple[int, int] = (4, 8)
    """Problems of a step, and completions of each."""
    warm_up: int = 12
    """Steps before the clock; the losses of the first ten at most are compared."""
    burst: int = 20
    """Steps of a turn."""
    batches: int = 400
    """How often TRL's data repeat the batch: at least as many as there are steps, and no more
    where its reference is computed of all of them before."""


SIZES = {
    "156k": Size(512, 64, 256, 2, 4, 2, new_tokens=32, parameters=156_224),
    "1.25m": Size(2048, 128, 512, 4, 4, 2, new_tokens=64, parameters=1_247_360, burst=5),
    # Two thousand tokens a step, in rows as uneven as rows are.
    "50m": Size(
        *(8192, 512, 1536, 14, 8, 4),
        new_tokens=96,
        parameters=48_263_680,
        positions=2048,
        packed=(8, 256),
        rows=(512, 416, 352, 224, 192, 160, 128, 64),
        pairs=(4, 256),
        prompt=64,
        groups=(2, 8),
        warm_up=4,
        burst=1,
        batches=20,
    ),
    # For what rounding does: as many layers as a small model that is really trained.
    "100m": Size(32_768, 640, 2560, 14, 10, 2, new_tokens=32, parameters=103_577_984),
    # The shape of Qwen2.5-0.5B: for a GPU.
    "0.5b": Size(
        151_936, 896, 4864, 24, 14, 2, new_tokens=256, parameters=494_032_768, positions=8192
    ),
    # For the tests of these scripts.
    "tiny": Size(64, 16, 32, 1, 2, 1, new_tokens=8, parameters=3_408, packed=(4, 16)),
}
GROUP, PROBLEMS, PROMPT_TOKENS = 8, 4, 16
SFT_ROWS, SFT_TOKENS = 16, 64
"""Of the scripts that measure the small sizes alone."""
LEARNING_RATE, BETA2 = 1e-4, 0.95
RL_LEARNING_RATE = 1e-6
"""So small that rewards stay mixed while the clock runs."""


def prepare(folder: Path, name: str) -> dict[str, Any]:
    """Write policies and data of one size; returns the facts for the report."""
    size = SIZES[name]
    words = [*SPECIAL, *(f"w{i}" for i in range(size.vocabulary - len(SPECIAL)))]
    policy = folder / "policy"
    save(policy, size, words, never_ends=False)
    save(folder / "endless", size, words, never_ends=True)
    source = random.Random(0)

    def text(num_words: int) -> str:
        return " ".join(source.choice(words[len(SPECIAL) :]) for _ in range(num_words))

    # A completion is closed by the end token on both sides. One word of prompt, so that all tokens
    # but the first bear loss, as in language modeling.
    rows = {
        "sft": [{"prompt": text(1), "completion": " " + text(length - 2)} for length in size.rows],
        "pairs": [
            {
                "prompt": text(size.prompt),
                "chosen": " " + text(size.pairs[1] - size.prompt - 1),
                "rejected": " " + text(size.pairs[1] - size.prompt - 1),
            }
            for _ in range(size.pairs[0])
        ],
        "packed": [
            {"prompt": text(1), "completion": " " + text(size.packed[1] - 2)}
            for _ in range(size.packed[0])
        ],
        "prompts": [text(size.prompt) for _ in range(64)],
    }
    (folder / "rows.json").write_text(json.dumps(rows))
    return asdict(size)


def save(path: Path, size: Size, words: list[str], *, never_ends: bool) -> None:
    """A Qwen2 of random weights with a tokenizer of whole words.

    `never_ends` turns the end token's embedding away from all others, so that no completion ends
    before its limit: forced tokens without a rule that only one side would have to apply.
    """
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        max_position_embeddings=size.positions,
        tie_word_embeddings=True,
        pad_token_id=words.index(PAD),
        bos_token_id=None,
        eos_token_id=words.index(END),
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config)
    assert model.num_parameters() == size.parameters, model.num_parameters()
    if never_ends:
        with torch.no_grad():
            # Far above what fourteen layers of random weights add to it.
            model.model.embed_tokens.weight[:, 0] = 4.0
            model.model.embed_tokens.weight[words.index(END), 0] = -8.0
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=END, pad_token=PAD, unk_token="<unk>"
    )
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)


def half_reward(text: str) -> float:
    """1 where the words' numbers are even more often than odd: half of what is drawn at random."""
    numbers = [int(word[1:]) for word in text.split() if word[:1] == "w"]
    return float(2 * sum(number % 2 == 0 for number in numbers) > len(numbers))
