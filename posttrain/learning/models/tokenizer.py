"""Train a small byte-level BPE tokenizer, and tell two tokenizers apart by digest."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of, sorted_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
# Each digit alone, so that numbers have one spelling; a word or a sign takes the space before it,
# and a sign also the one between it and a number, which makes " + " one token.
_PIECES = r"\d| ?\p{L}+| ?[^\s\p{L}\d]+(?: (?=[\d(-]))?|\n| +"


def train_tokenizer(texts: Iterable[str], *, vocab_size: int) -> "PreTrainedTokenizerFast":
    """Train a byte-level BPE tokenizer: any text round-trips, digits are single tokens.

    Ids 0, 1, 2 are ``<pad>``, ``<bos>``, ``<eos>``; plain encoding opens with ``<bos>``.

    Args:
        texts: What to learn merges from; the same texts in the same order give the same tokenizer.
        vocab_size: Most tokens that it may have, the special ones included.

    Returns:
        The tokenizer.

    Raises:
        UserError: The vocabulary cannot hold all bytes and the special tokens.

    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    smallest = len(alphabet) + 3
    if vocab_size < smallest:
        raise UserError(
            f"vocab_size {vocab_size} cannot hold 256 bytes and 3 special tokens; "
            f"take at least {smallest}"
        )
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=PAD, bos_token=BOS, eos_token=EOS
    )


def tokenizer_digest(tokenizer: "PreTrainedTokenizerBase") -> str:
    """Hash everything that decides how text becomes ids.

    The chat template is no part of it: it decides which text a prompt becomes. Nor is the token
    that fills rows up: a reward model may pad with another one than the policy does.

    Args:
        tokenizer: A fast tokenizer.

    Returns:
        SHA-256, in hexadecimal.

    """
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    # Set by the last call that padded or truncated; no part of the tokenizer's identity.
    rules["padding"] = rules["truncation"] = None
    special = [tokenizer.bos_token_id, tokenizer.eos_token_id]
    identity = [rules, special]
    return sha256_of(sorted_json(identity))


def check_same_tokenizer(
    one: "PreTrainedTokenizerBase", other: "PreTrainedTokenizerBase", *, where: str
) -> None:
    """Refuse two tokenizers by which one text has different ids, naming both digests.

    Chat templates may differ, as training may give a model its first one. Whoever compares models
    on prompts renders these for each by its own template; whoever measures a second model on
    tokens that the first has read (a reference) gives it these very ids, and renders nothing.

    Args:
        one: A tokenizer.
        other: The one that must cut text alike.
        where: What has the two, for the error.

    Raises:
        UserError: They differ.

    """
    first, second = tokenizer_digest(one), tokenizer_digest(other)
    if first != second:
        raise UserError(
            f"{where}: the tokenizers differ ({first[:12]} and {second[:12]}); "
            "train both models from checkpoints that share one tokenizer"
        )
