"""A lean forward and backward pass of Llamas and Qwen2s on a CPU, for training.

A prefix that rows share (the prompt of a group of rollouts, or of a pair) goes through the layers
once, padding not at all, and the last layer goes on only where a hidden state is wanted: for a
reward head at one position a row. All of it is exact. What surrounds attention in a layer is two
functions whose backward passes are written out.

Shape letters beyond the usual: `_N` tokens that are computed, `_W` wanted ones, `_C` hidden size,
`_H` query heads, `_K` key-value heads, `_D` head size, `_I` intermediate size of the MLP.
"""

from posttrain.learning.models.lean.known import is_lean
from posttrain.learning.models.lean.states import lean_hidden_states

__all__ = ["is_lean", "lean_hidden_states"]
