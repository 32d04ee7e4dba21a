"""What the decode loop needs of a model, and which of the two ways to run it is taken."""

from typing import Any, Protocol

from torch import Tensor

from posttrain.sampling import llama
from posttrain.sampling.memory import Memory


class Decoder(Protocol):
    """A model in the middle of a batch: `_P` prompts, `group` rows each, `_R` rows in all.

    Rows of one prompt are adjacent. The state belongs to one batch; `prefill` begins the next.
    """

    def prefill(self, ids_PS: Tensor, padding_P: Tensor, *, group: int, max_tokens: int) -> Tensor:
        """Read prompts padded on the left by `padding_P`; logits of what follows them `[P, V]`.

        Makes room for `group` rows per prompt, each of up to `max_tokens` tokens.
        """
        ...

    def step(self, tokens_R: Tensor) -> Tensor:
        """Append one token to every row; logits of what follows `[R, V]`."""
        ...

    def keep(self, prompts_P: Tensor) -> None:
        """Go on with the rows of these prompts only, indices into the present ones."""
        ...


def open_decoder(model: Any, memory: Memory) -> Decoder:
    """The lean decoder where it computes what the model computes, else the model's own forward."""
    if llama.is_lean(model):
        return llama.LlamaDecoder(model, memory)
    from posttrain.sampling.cached import CachedDecoder

    return CachedDecoder(model)
