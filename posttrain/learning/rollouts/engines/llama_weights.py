"""The weights of a Llama as our decoder multiplies them, and what stands around attention.

Shape letters: `_R` rows, `_C` hidden size, `_H` query heads, `_K` key-value heads, `_D` head size.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class LayerWeights:
    """The weights of one decoder layer, as right factors of a product.

    What reads a norm carries that norm's weight and sqrt(C), see `LlamaWeights.unit`. `qkv` and its
    bias are scaled and permuted, see `LlamaWeights._fuse`.
    """

    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    gate_up: Tensor
    down: Tensor


class LlamaWeights:
    """Weights read from a transformers Llama or Qwen2 when this is made; no gradient.

    Qwen2 is a Llama with biases on queries, keys and values.
    """

    def __init__(self, model: Any) -> None:
        config = model.config
        self.head_size: int = model.model.layers[0].self_attn.head_dim
        self.embedding: Tensor = model.model.embed_tokens.weight
        # The side that, with the length of x, makes up the root of sum x^2 + C eps.
        self.smallest = torch.tensor(config.hidden_size * config.rms_norm_eps, device=model.device)
        self.smallest.sqrt_()
        self.norm = model.model.norm.weight * config.hidden_size**0.5
        self.head: Tensor = model.lm_head.weight.t()
        self.layers = [self._read(layer) for layer in model.model.layers]

    def _read(self, layer: Any) -> LayerWeights:
        attention, mlp = layer.self_attn, layer.mlp
        projections = attention.q_proj, attention.k_proj, attention.v_proj
        biases = [projection.bias for projection in projections if projection.bias is not None]
        qkv = self._fuse(*(projection.weight for projection in projections))
        gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
        for matrix, norm in (
            (qkv, layer.input_layernorm),
            (gate_up, layer.post_attention_layernorm),
        ):
            matrix.mul_(norm.weight * len(norm.weight) ** 0.5)
        return LayerWeights(
            qkv=qkv.t(),
            qkv_bias=self._fuse(*(bias[:, None] for bias in biases))[:, 0] if biases else None,
            out=attention.o_proj.weight.t(),
            gate_up=gate_up.t(),
            down=mlp.down_proj.weight.t(),
        )

    def _fuse(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """One matrix for q, k and v: q carries 1/sqrt(D), the rotated pairs of q and k adjoin."""
        qk = torch.cat([q * self.head_size**-0.5, k])
        return torch.cat([adjoin_pairs(qk, self.head_size), v])

    def unit(self, x_RC: Tensor) -> Tensor:
        """`x / sqrt(sum x^2 + C eps)`: RMSNorm but for a factor, which the weights carry."""
        length_R1 = torch.linalg.vector_norm(x_RC, dim=-1, keepdim=True)
        return x_RC / torch.hypot(length_R1, self.smallest)

    def project(self, x_RC: Tensor, layer: LayerWeights, out: Tensor | None = None) -> Tensor:
        """Compute queries, keys and values, not turned by their positions yet.

        Args:
            x_RC: Residual stream of R rows, C wide.
            layer: Weights of the block.
            out: Where to write; None makes a new tensor.

        Returns:
            ``[R, (H + 2 K) * D]``: H heads, K heads of keys and values, D wide.

        """
        if layer.qkv_bias is None:
            return torch.mm(self.unit(x_RC), layer.qkv, out=out)
        return torch.addmm(layer.qkv_bias, self.unit(x_RC), layer.qkv, out=out)

    def finish(self, x_RC: Tensor, attended: Tensor, layer: LayerWeights) -> Tensor:
        """Add the output projection and the gated MLP to the residual stream.

        Args:
            x_RC: Residual stream before the block.
            attended: What attention read, ``[R, H * D]``.
            layer: Weights of the block.

        Returns:
            The residual stream after it, ``[R, C]``.

        """
        x_RC = torch.addmm(x_RC, attended, layer.out)
        gate, up = torch.mm(self.unit(x_RC), layer.gate_up).chunk(2, -1)
        return x_RC.addmm_(F.silu(gate, inplace=True).mul_(up), layer.down)

    def logits(self, x_RC: Tensor) -> Tensor:
        """Logits of the last hidden states `[R, V]`."""
        return torch.mm(self.unit(x_RC) * self.norm, self.head)


def rotation_factors(rotary: Any, length: int) -> Tensor:
    """Compute ``scale * exp(i * position * frequency)``, the factors of rotary positions.

    Args:
        rotary: The model's module with the inverse frequencies.
        length: Number of positions, from 0.

    Returns:
        Complex, ``[T, D/2]``.

    """
    positions_T = torch.arange(length, device=rotary.inv_freq.device)
    angles = positions_T[:, None].float() * rotary.inv_freq
    return torch.polar(torch.full_like(angles, rotary.attention_scaling), angles)


def adjoin_pairs(heads_FC: Tensor, size: int) -> Tensor:
    """Order the rows of a projection to whole heads so that those that turn together adjoin.

    Llama pairs dimension i of a head with i + D/2. With a pair adjacent, the rotation is one
    complex product, and q.k does not change when both are permuted alike.

    Args:
        heads_FC: Weights of a query or key projection; F is heads times head size.
        size: Head size D.

    Returns:
        The same rows in the new order.

    """
    halves = heads_FC.view(len(heads_FC) // size, 2, size // 2, -1)
    return halves.transpose(1, 2).reshape_as(heads_FC)
