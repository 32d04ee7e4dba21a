"""Keys and values of one decoder layer, and the views of them that every step takes.

For a small model a step costs as much Python and dispatch as arithmetic, so what is the same at
every step is made once. Shape letters are those of `llama.py`.
"""

import torch
from torch import Tensor

from posttrain.learning.rollouts.engines.compaction import move_to_front


class LayerCache:
    """Keys and values of the prompts, and of each row's own tokens.

    `own` is `[2, P, K, G, room, D]`, keys before values; `prompt_keys` is `[P, K, D, S]` and
    `prompt_values` `[P, K, S, D]`, of no positions where the rows' own hold the prompts too.
    """

    def __init__(self, own: Tensor, prompt_keys: Tensor, prompt_values: Tensor) -> None:
        self.own = own
        self.prompt_keys, self.prompt_values = prompt_keys, prompt_values
        self._look()

    def _look(self) -> None:
        keys, values = self.own.flatten(1, 3)
        self.keys_to, self.values = keys.transpose(1, 2), values
        """Own keys `[P * K * G, D, room]` and values `[P * K * G, room, D]`."""
        self.slots = torch.view_as_complex(self.own.view(*self.own.shape[:-1], -1, 2))
        """Where keys and values go, pairs as one number: `[2, P, K, G, room, D/2]`."""
        self.shared_keys = self.prompt_keys.flatten(0, 1)
        self.shared_values = self.prompt_values.flatten(0, 1)

    def keep(self, prompts_P: Tensor, *, used: int) -> None:
        """Go on with these prompts only; `used` positions of the rows' own are of interest."""
        for each in self.own:
            move_to_front(each[:, :, :, :used], prompts_P)
        self.own = self.own[:, : len(prompts_P)]
        self.prompt_keys = move_to_front(self.prompt_keys, prompts_P)
        self.prompt_values = move_to_front(self.prompt_values, prompts_P)
        self._look()
