"""What some architectures do to the output of their head before it is a distribution.

Gemma caps it, ``cap tanh(z / cap)`` (arXiv 2408.00118, section 2); Cohere and Falcon-H1 multiply
it, Granite divides it. transformers does so inside the whole model's forward, which is too late
for one that never holds all logits.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_FACTORS = ("logit_scale", "lm_head_multiplier")
_DIVISORS = ("logits_scaling",)
_CAPS = ("final_logit_softcapping", "logits_soft_cap")


class FinalLogits(NamedTuple):
    """First `scale`, then `cap`; applied to a head's output they give the model's own logits."""

    scale: float = 1.0
    cap: float | None = None

    @property
    def changes_nothing(self) -> bool:
        """True of most architectures: their logits are their head's output."""
        return self == FinalLogits()

    def __call__(self, logits_NV: Tensor) -> Tensor:
        """The model's logits from its head's output, in the same shape."""
        if self.scale != 1.0:
            logits_NV = logits_NV * self.scale
        if self.cap is not None:
            logits_NV = torch.tanh(logits_NV / self.cap) * self.cap
        return logits_NV


def final_logits(config: "PretrainedConfig") -> FinalLogits:
    """What a configuration says; most say nothing, and then nothing is computed."""
    stated = config.get_text_config()
    scale = 1.0
    for name in _FACTORS:
        scale *= _number(stated, name) or 1.0
    for name in _DIVISORS:
        scale /= _number(stated, name) or 1.0
    return FinalLogits(scale, next(filter(None, (_number(stated, name) for name in _CAPS)), None))


def _number(stated: "PretrainedConfig", name: str) -> float | None:
    """Read a field that the architecture has, or a property that it derives (MiniCPM3).

    A field of a config file that its class does not declare is kept there, and computes nothing.
    """
    value = getattr(stated, name) if hasattr(type(stated), name) else None
    return float(value) if isinstance(value, int | float) else None
