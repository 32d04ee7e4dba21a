"""The sizes of a model, from its config alone: the architecture is built without memory."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.stage.errors import UserError, first_line

if TYPE_CHECKING:
    from torch import nn
    from transformers import PretrainedConfig

_PLAIN = frozenset({"llama", "qwen2"})
"""Families that have a forward pass of our own on a CPU; see `models.fast_llama`."""


@dataclass(frozen=True)
class LinearShape:
    """A linear layer of the stack: ``width_in x width_out`` weights."""

    name: str
    width_in: int
    width_out: int

    @property
    def elements(self) -> int:
        """Weights, without a bias."""
        return self.width_in * self.width_out


@dataclass(frozen=True)
class ModelShapes:
    """What the accounting knows of a model. Sizes are numbers of elements."""

    family: str
    parameters: int
    """All of them; tied ones once."""
    embedding: int
    """Of the table of embeddings."""
    head: int
    """Of the output head; 0 where that is the embeddings, or where there is none."""
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    mlp: int
    """Width of the MLP; of a mixture of experts, of those that one token goes through."""
    gated: bool
    """Whether the MLP multiplies two projections."""
    context: int
    """Positions."""
    linears: tuple[LinearShape, ...]
    """Of all layers, the head excepted."""
    stored: int = 4
    """Bytes of a number in the checkpoint."""
    norms: int = 2
    """Of the stream, in a layer."""
    norms_of_heads: bool = False
    """Whether queries and keys are normed."""
    keeps_normed: bool = True
    """Whether a norm keeps its output before the weight, as transformers' RMSNorm does."""
    kernel: str = "sdpa"
    """Of the attention, where a recipe leaves that to transformers."""
    fused: bool = False
    """Whether queries, keys and values are one projection, which its values keep alive."""
    caps_scores: bool = False
    """Whether attention scores go through a soft cap (arXiv 2408.00118, section 2)."""
    caps_logits: bool = False
    """Whether logits do."""
    experts: int = 0
    """Experts that one token goes through; each gathers its tokens."""

    @property
    def attention(self) -> int:
        """Width of the queries of a token."""
        return self.heads * self.head_size

    @property
    def keys(self) -> int:
        """Width of the keys of a token; its values are as wide."""
        return self.kv_heads * self.head_size

    @property
    def matrices(self) -> int:
        """Elements of the linear layers of the stack."""
        return sum(each.elements for each in self.linears)

    @property
    def in_layers(self) -> int:
        """Elements of all layers: neither embeddings nor head."""
        return self.parameters - self.embedding - self.head

    @property
    def per_layer(self) -> int:
        """Elements of one layer, the last norm shared out among all."""
        return self.in_layers // self.layers

    @property
    def largest_matrix(self) -> int:
        """Elements of the largest linear layer of the stack."""
        return max((each.elements for each in self.linears), default=0)

    @property
    def is_plain(self) -> bool:
        """Whether it is of a family that has a forward pass of our own on a CPU."""
        return self.family in _PLAIN


def read_shapes(folder: Path) -> ModelShapes:
    """Read the sizes of a model off its folder's config.json.

    Args:
        folder: Of a model in the Hugging Face format; weights need not be there.

    Returns:
        Its sizes.

    Raises:
        UserError: There is no config, or transformers does not know what it describes.

    """
    from transformers import AutoConfig

    if not (folder / "config.json").is_file():
        raise UserError(
            f"{folder}: there is no config.json; give the folder of a model in the Hugging Face"
            " format"
        )
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        return shapes_of(config)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, TypeError) as error:
        raise UserError(
            f"{folder}: transformers cannot build what config.json describes:"
            f" {first_line(error)}; take an architecture that it implements"
        ) from None


def shapes_of(config: "PretrainedConfig") -> ModelShapes:
    """Build an architecture on the meta device, and read its sizes.

    Args:
        config: Of transformers; says of which model.

    Returns:
        Its sizes.

    Raises:
        UserError: It does not attend.

    """
    import torch
    from transformers import AutoModelForCausalLM

    from posttrain.learning.models.final_logits import final_logits

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    text: Any = config.get_text_config()
    if not hasattr(text, "num_attention_heads"):
        raise UserError(
            f"memory is counted of models that attend, and the config.json of '{config.model_type}'"
            " names no num_attention_heads; plan without --memory"
        )
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings()
    heads = int(text.num_attention_heads)
    kv_heads = int(_declared(text, "num_key_value_heads") or heads)
    head_size = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
    mlp, linears = _mlp_width(text), tuple(_linears(model))
    return ModelShapes(
        family=str(config.model_type),
        parameters=sum(each.numel() for each in model.parameters()),
        embedding=embedding.numel(),
        head=0 if head is None or head.weight is embedding else head.weight.numel(),
        vocabulary=embedding.shape[0] if head is None else head.weight.shape[0],
        hidden=int(text.hidden_size),
        layers=int(text.num_hidden_layers),
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        mlp=mlp,
        gated=_is_gated(linears, mlp),
        context=int(getattr(text, "max_position_embeddings", None) or 0),
        linears=linears,
        stored=_bytes_stored(config),
        **_norms(model, int(text.hidden_size)),
        kernel=str(model.config._attn_implementation),
        fused=any(
            "att" in each.name and each.width_out == (heads + 2 * kv_heads) * head_size
            for each in linears
        ),
        caps_scores=bool(_declared(text, "attn_logit_softcapping")),
        caps_logits=final_logits(config).cap is not None,
        experts=int(_declared(text, "num_experts_per_tok") or 0),
    )


def llama_shapes(
    *, vocabulary: int, hidden: int, layers: int, heads: int, context: int
) -> ModelShapes:
    """Return the sizes of the Llama that `models.build.build_llama` begins with.

    Args:
        vocabulary: Tokens.
        hidden: Width.
        layers: Depth.
        heads: Attention heads.
        context: Positions.

    """
    from transformers import LlamaConfig

    return shapes_of(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            max_position_embeddings=context,
            tie_word_embeddings=True,
        )
    )


def _linears(model: "nn.Module") -> Iterator[LinearShape]:
    import torch

    own: Any = model
    head = own.get_output_embeddings()
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and module is not head:
            yield LinearShape(name, module.in_features, module.out_features)


def _norms(model: "nn.Module", hidden: int) -> dict[str, Any]:
    """What the norms of the first layer keep, by fields of `ModelShapes`."""
    import torch

    lists = (each for each in model.modules() if isinstance(each, torch.nn.ModuleList))
    layer = next(iter(next(lists, [torch.nn.Identity()])))
    found = [each for each in layer.modules() if "Norm" in type(each).__name__]
    widths = [getattr(each, "weight", None) for each in found]
    of_stream = [each for each in widths if each is None or each.numel() == hidden]
    return {
        "norms": len(of_stream),
        "norms_of_heads": len(of_stream) < len(found),
        "keeps_normed": not any("LayerNorm" in type(each).__name__ for each in found),
    }


def _declared(text: Any, name: str) -> Any:
    """Read a field that the architecture has; one of a config file alone computes nothing."""
    return getattr(text, name) if hasattr(type(text), name) else None


def _mlp_width(text: Any) -> int:
    """Of a mixture, the experts that one token goes through, side by side."""
    wide = int(getattr(text, "intermediate_size", None) or 4 * text.hidden_size)
    chosen = getattr(text, "num_experts_per_tok", None)
    if not chosen:
        return wide
    expert = int(getattr(text, "moe_intermediate_size", None) or wide)
    shared = int(getattr(text, "shared_expert_intermediate_size", None) or 0)
    return int(chosen) * expert + shared


def _is_gated(linears: tuple[LinearShape, ...], mlp: int) -> bool:
    """Two projections to the width of the MLP in a layer, or one to twice that; experts are."""
    linears = tuple(each for each in linears if "att" not in each.name)
    widths = Counter(each.width_out for each in linears)
    ups = widths[mlp] + 2 * widths[2 * mlp]
    downs = sum(each.width_in == mlp for each in linears)
    return not downs or ups >= 2 * downs


def _bytes_stored(config: "PretrainedConfig") -> int:
    dtype = getattr(config, "dtype", None)
    return 4 if dtype is None else math.ceil(getattr(dtype, "itemsize", 4))
