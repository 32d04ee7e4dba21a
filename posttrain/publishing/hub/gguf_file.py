"""A model as one GGUF file for llama.cpp, kept only if it answers as the model does."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from posttrain.stage.errors import UserError, first_line
from posttrain.stage.extras import extra_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LARGEST_GAP = 1e-4
"""Nats by which the log-probability of a token may differ. Nothing is quantized, so it is rounding
in float32 alone."""
_FAMILIES = ("llama", "qwen2")
# Digits, letters of several scripts, signs and spaces: where ways of cutting text differ.
_TEXTS = ("12 + 345 = 357", "def f(x):\n    return x\n\n", "Größe, 東京 - don't!", "  a   b ")
# Of tokens, as llama.cpp numbers them: special ones are no text, added ones are cut out first.
_NORMAL, _SPECIAL, _ADDED, _UNUSED = 1, 3, 4, 5


class Compared(NamedTuple):
    """A model and the file that was written of it."""

    largest_gap: float
    """Nats, over all tokens that were compared."""
    tokens: int


def export_gguf(folder: Path, file: Path) -> Compared:
    """Write a model, its tokenizer and its chat template as one file, and read it back.

    Args:
        folder: With the model, of the families Llama and Qwen2, and a tokenizer that llama.cpp
            cuts text by in the same way.
        file: To be written; where anything differs, nothing is left there.

    Returns:
        By how much the model that was read back differs.

    Raises:
        UserError: llama.cpp would compute or cut text otherwise, or the file answers otherwise.

    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: no model is read there: {first_line(error)}") from None
    _refuse_other(folder, model)
    cut = _way_of_cutting(folder)
    partial = file.with_name(f".partial-{file.name}")
    try:
        _write(partial, model, tokenizer, cut)
        found = _compare(partial, model.to(torch.float32), tokenizer)
        if found.largest_gap > LARGEST_GAP:
            raise UserError(
                f"{file}: what is read back says a token with a log-probability that is off by"
                f" {found.largest_gap:.2g}, where {LARGEST_GAP:g} is the most; nothing is written"
            )
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
    return found


def _refuse_other(folder: Path, model: "PreTrainedModel") -> None:
    config = model.config
    rope = getattr(config, "rope_parameters", None) or {}
    reasons = {
        f"its architecture is {config.model_type}": config.model_type not in _FAMILIES,
        "its positions are scaled": rope.get("rope_type", "default") != "default",
        "its attention slides": bool(getattr(config, "use_sliding_window", False)),
        "its layers have biases of their own": config.model_type == "llama"
        and any(name.endswith(".bias") for name, _ in model.named_parameters()),
    }
    if reason := next((said for said, holds in reasons.items() if holds), None):
        raise UserError(
            f"{folder}: {reason}; this writes plain models of {' and '.join(_FAMILIES)}, and"
            " convert_hf_to_gguf.py of llama.cpp others"
        )


def _way_of_cutting(folder: Path) -> str:
    """llama.cpp's name of how text is cut before it is merged into tokens."""
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    path = folder / "tokenizer.json"
    described = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    cutter = described.get("pre_tokenizer") or {}
    steps = cutter.get("pretokenizers") or [cutter]
    is_merging = (described.get("model") or {}).get("type") == "BPE"
    patterns = [(each.get("pattern") or {}).get("Regex") for each in steps]
    bytes_step = steps[-1].get("type") == "ByteLevel" and not steps[-1].get("add_prefix_space")
    if is_merging and bytes_step and len(steps) == 1 and steps[0].get("use_regex", True):
        return "gpt-2"
    if is_merging and bytes_step and patterns == [PRETOKENIZE_REGEX, None]:
        return "qwen2"
    raise UserError(
        f"{folder}: llama.cpp has no name for how this tokenizer cuts text (it knows those of"
        " Qwen2 and GPT-2, among others), so it would read other tokens than the model learned;"
        " a tokenizer that pretrain made is one of these. Serve it with vLLM: posttrain release"
        " serve"
    )


def _write(
    file: Path, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", cut: str
) -> None:
    try:
        import gguf
    except ModuleNotFoundError:
        raise UserError(
            f"gguf needs a package that is not installed; run: {extra_line('gguf')}"
        ) from None
    config = model.config
    writer = gguf.GGUFWriter(file, config.model_type)
    heads = config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(float(config.rope_parameters["rope_theta"]))
    wide = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer.add_rope_dimension_count(wide)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, tokenizer, cut, size=config.vocab_size)
    names = gguf.get_tensor_name_map(
        gguf.MODEL_ARCH[config.model_type.upper()], config.num_hidden_layers
    )
    for name, weight in _weights(model):
        called = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if called is None:
            raise UserError(f"GGUF has no name for the weight {name}")
        kind = _kind_of(weight, gguf.GGMLQuantizationType)
        packed = gguf.quants.quantize(weight.float().numpy(), kind)
        writer.add_tensor(called, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _weights(model: "PreTrainedModel") -> "Iterator[tuple[str, torch.Tensor]]":
    """Weights as llama.cpp lays them out: a Llama's queries and keys are turned in pairs."""
    config = model.config
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    # A tied head has one name here, and is read from the embedding.
    for name, parameter in model.named_parameters():
        weight = parameter.detach()
        count = heads.get(name.split(".")[-2]) if config.model_type == "llama" else None
        if count is not None:
            halves = weight.reshape(count, 2, weight.shape[0] // count // 2, -1)
            weight = halves.swapaxes(1, 2).reshape(weight.shape)
        yield name, weight.contiguous()


def _kind_of(weight: "torch.Tensor", kinds: Any) -> Any:
    """The type in which nothing is lost; vectors are float32, as llama.cpp wants them."""
    import torch

    if weight.ndim == 1:
        return kinds.F32
    return {torch.bfloat16: kinds.BF16, torch.float16: kinds.F16}.get(weight.dtype, kinds.F32)


def _add_tokenizer(
    writer: Any, tokenizer: "PreTrainedTokenizerBase", cut: str, *, size: int
) -> None:
    described: Mapping[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = tokenizer.get_vocab()
    by_id = {number: token for token, number in vocabulary.items()}
    added = {
        each["id"]: _SPECIAL if each["special"] else _ADDED for each in described["added_tokens"]
    }
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(cut)
    # Rows of the embedding that no token has.
    writer.add_token_list([by_id.get(number, f"[PAD{number}]") for number in range(size)])
    kinds = [added.get(each, _NORMAL) if each in by_id else _UNUSED for each in range(size)]
    writer.add_token_types(kinds)
    merges = described["model"]["merges"]
    writer.add_token_merges([each if isinstance(each, str) else " ".join(each) for each in merges])
    for name in ("bos", "eos", "pad"):
        number = getattr(tokenizer, f"{name}_token_id")
        if number is not None:
            getattr(writer, f"add_{name}_token_id")(number)
    opens = tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id is not None
    writer.add_add_bos_token(opens)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def _compare(
    file: Path, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase"
) -> Compared:
    """Read the file back, and say the same texts and a greedy answer to each by both."""
    import torch
    from transformers import AutoModelForCausalLM

    again = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    ).eval()
    gap, count = 0.0, 0
    for text in _TEXTS:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        answers = [
            each.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=16,
                do_sample=False,
                pad_token_id=tokenizer.pad_token_id,
            )
            for each in (model, again)
        ]
        if answers[0].tolist() != answers[1].tolist():
            raise UserError(
                f"{file.name.removeprefix('.partial-')}: what is read back answers otherwise to"
                f" {text!r}; nothing is written"
            )
        with torch.inference_mode():
            said = [each(input_ids=answers[0]).logits.log_softmax(-1) for each in (model, again)]
        gap = max(gap, float((said[0] - said[1]).abs().max()))
        count += answers[0].numel()
    return Compared(gap, count)
