"""What a forward pass keeps for the backward pass, layer by layer, and what either needs at once.

Counted are the tensors that autograd saves of a decoder layer of the Llama family as transformers
computes it: RMSNorm in float32, rotary positions, attention that holds no ``T x T``, a gated MLP.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from posttrain.learning.memory.learner import CPU, Learner
from posttrain.learning.memory.shapes import ModelShapes

_TILE = 16
"""Rows are as long as a multiple of this for attention in our own pass (`models.fast_llama`)."""


@dataclass(frozen=True)
class BatchRows:
    """A micro-batch: so many rows of so many tokens."""

    count: int
    length: int
    wanted: int
    """Tokens that bear loss, whose logits are computed."""
    shared: int = 0
    """Tokens that all rows begin with, which our own pass computes once."""

    @property
    def tokens(self) -> int:
        """Of all rows, padding counted."""
        return self.count * self.length


@dataclass(frozen=True)
class NumberWidths:
    """Bytes of the numbers of a pass."""

    stream: int
    """What a norm saves of the residual stream."""
    kept_stream: int
    """The stream as it goes from layer to layer."""
    normed: int
    """What a norm saves for the gradient of its weight."""
    shared_input: int
    """What a norm gives, where the layers behind it save one tensor together."""
    own_input: int
    """The same, where each of them saves a cast of its own."""
    inner: int
    """Queries, keys, values, and the MLP."""


NUMBER_WIDTHS: Mapping[str, NumberWidths] = {
    "fp32": NumberWidths(4, 4, 4, 4, 0, 4),
    # autocast keeps norms and stream in float32 and casts the input of every linear layer.
    "autocast": NumberWidths(4, 4, 4, 0, 2, 2),
    "bf16": NumberWidths(4, 2, 2, 2, 0, 2),
}
"""By `Learner.computes_in`."""


_BY_MASK = "sdpa"
"""The kernel that tells packed rows apart by a ``T x T`` mask, where a recipe names it."""


def is_own_pass(shapes: ModelShapes, learner: Learner) -> bool:
    """Tell whether the pass is our own, as `models.fast_llama.is_fast_llama` does.

    Args:
        shapes: Of the model.
        learner: How it learns, and on what device.

    Returns:
        True where our own computes.

    """
    return (
        shapes.is_plain
        and learner.device == CPU
        and learner.processes == 1
        and learner.lora is None
        and learner.computes_in == "fp32"
        and not learner.packing
        and (learner.attention or shapes.kernel) == "sdpa"
    )


def layer_bytes(
    shapes: ModelShapes, learner: Learner, rows: BatchRows, *, is_last: bool = False
) -> int:
    """Count what one layer keeps for its backward pass.

    Args:
        shapes: Of the model.
        learner: How it computes, and what is trained.
        rows: The micro-batch.
        is_last: Our own pass goes on at the wanted tokens alone behind the last attention.

    Returns:
        Bytes.

    """
    own, at = is_own_pass(shapes, learner), NUMBER_WIDTHS[learner.computes_in]
    computed = _computed(rows) if own else rows.tokens
    behind = rows.wanted if own and is_last else computed
    normed = _normed(shapes, learner)
    norm = shapes.hidden * (at.stream + normed + at.shared_input)
    before = norm + shapes.hidden * 3 * at.own_input
    after = norm + shapes.hidden * (2 if shapes.gated else 1) * at.own_input
    after += shapes.hidden * (shapes.norms - 2) * (at.stream + normed)
    after += at.inner * shapes.mlp * (4 if shapes.gated else 2)
    # Of its tokens, and of what it gives before that is weighed.
    after += 2 * shapes.experts * shapes.hidden * at.inner
    if shapes.norms_of_heads:
        before += (shapes.attention + shapes.keys) * (at.stream + min(normed, at.inner))
    # Our own pass takes the tokens out of the rows again.
    after += at.inner * shapes.attention if own else 0
    return int(
        computed * before + behind * after + _attention(shapes, learner, rows, own=own, at=at)
    )


def _normed(shapes: ModelShapes, learner: Learner) -> int:
    """Bytes of a number that a norm keeps for the gradient of its weight."""
    kept = shapes.keeps_normed and learner.lora is None
    return NUMBER_WIDTHS[learner.computes_in].normed if kept else 0


def _attention(
    shapes: ModelShapes, learner: Learner, rows: BatchRows, *, own: bool, at: NumberWidths
) -> int:
    """Queries, keys, values, output, and the log-sum-exp of each head."""
    length = -(-rows.length // _TILE) * _TILE if own else rows.length
    places, kernel = rows.count * length, learner.attention or shapes.kernel
    if kernel == "eager":
        # Keys are repeated for every head, whose softmax is of float32, and kept as it is used.
        scores = rows.count * shapes.heads * length * length
        narrow = at.inner if at.inner < at.stream else 0
        capped = at.inner if shapes.caps_scores else 0
        return places * at.inner * 4 * shapes.attention + scores * (at.stream + narrow + capped)
    keys, outputs, mask = shapes.keys, 1, 0
    if learner.shares_tokens:
        # Of the tokens of all processes.
        keys *= learner.processes
    if learner.packing and learner.attention == _BY_MASK:
        # A bias a layer, and keys are repeated for every head.
        keys, mask = shapes.attention, places * places * at.inner
    if learner.packing and learner.attention is None and shapes.kernel == _BY_MASK:
        # What each document attended to, and all of them laid end to end.
        outputs = 2
    numbers = (1 + outputs) * shapes.attention + 2 * keys
    if shapes.fused:
        # Keys are turned into others, and values are a part of it.
        numbers += shapes.attention + shapes.keys
    return places * (at.inner * numbers + 4 * shapes.heads) + mask


def entry_bytes(shapes: ModelShapes, learner: Learner, rows: BatchRows) -> int:
    """Count what goes into a layer: all that activation checkpointing keeps of it.

    Args:
        shapes: Of the model.
        learner: How it learns, and on what device.
        rows: The micro-batch.

    Returns:
        Bytes.

    """
    return (
        NUMBER_WIDTHS[learner.computes_in].kept_stream
        * shapes.hidden
        * _tokens(shapes, learner, rows)
    )


def last_norm_bytes(shapes: ModelShapes, learner: Learner, rows: BatchRows) -> int:
    """Count what the last norm keeps, and the states that go on to the head.

    Args:
        shapes: Of the model.
        learner: How it learns, and on what device.
        rows: The micro-batch.

    Returns:
        Bytes.

    """
    at, own = NUMBER_WIDTHS[learner.computes_in], is_own_pass(shapes, learner)
    normed = _normed(shapes, learner)
    through = rows.wanted if own else rows.tokens
    return shapes.hidden * (through * (at.stream + normed) + rows.wanted * at.kept_stream)


def layer_backward_bytes(shapes: ModelShapes, learner: Learner, rows: BatchRows) -> int:
    """Count what the backward pass of a layer holds beside what was kept, at its most.

    That is behind the product of the gated MLP: three gradients as wide as the MLP stand where one
    kept tensor has gone; and the gradient of the stream.

    Args:
        shapes: Of the model.
        learner: How it learns, and on what device.
        rows: The micro-batch.

    Returns:
        Bytes.

    """
    at, tokens = NUMBER_WIDTHS[learner.computes_in], _tokens(shapes, learner, rows)
    wide = 2 if shapes.gated else 1
    return tokens * (wide * at.inner * shapes.mlp + at.kept_stream * shapes.hidden)


def layer_forward_bytes(shapes: ModelShapes, learner: Learner, rows: BatchRows) -> int:
    """Count what a pass holds at its most that keeps nothing: within one layer.

    In the MLP the stream, the norm's output and three tensors as wide as the MLP; in attention,
    while positions turn, four as wide as the queries beside keys and values.

    Args:
        shapes: Of the model.
        learner: How it learns, and on what device.
        rows: The micro-batch.

    Returns:
        Bytes.

    """
    at, tokens = NUMBER_WIDTHS[learner.computes_in], _tokens(shapes, learner, rows)
    stream = shapes.hidden * (at.kept_stream + (at.shared_input or at.stream + at.own_input))
    in_mlp = at.inner * shapes.mlp * (3 if shapes.gated else 2)
    turning = at.inner * (4 * shapes.attention + 2 * shapes.keys)
    return tokens * (stream + max(in_mlp, turning))


def cast_bytes(shapes: ModelShapes, learner: Learner) -> int:
    """Count the narrow copies of the matrices that autocast keeps until they are used again.

    Args:
        shapes: Of the model.
        learner: How it learns, and on what device.

    Returns:
        Bytes.

    """
    # Held narrow, a weight is widened for each product, and autocast sees none of it.
    casts = learner.computes_in == "autocast" and not learner.holds_base
    return 2 * shapes.matrices if casts else 0


def widened_bytes(shapes: ModelShapes, learner: Learner) -> int:
    """Count what widening the largest frozen matrix takes while it is multiplied with.

    Args:
        shapes: Of the model.
        learner: How it learns, and on what device.

    Returns:
        Bytes; 0 where nothing is held narrow.

    """
    if not learner.holds_base:
        return 0
    computed = NUMBER_WIDTHS[learner.computes_in].inner
    # Four bits are widened to float32 first (`models.nf4`).
    through = {"nf4": 4 if computed == 4 else 4 + computed, "bf16": computed if computed > 2 else 0}
    return through[learner.weights] * shapes.largest_matrix


def _tokens(shapes: ModelShapes, learner: Learner, rows: BatchRows) -> int:
    return _computed(rows) if is_own_pass(shapes, learner) else rows.tokens


def _computed(rows: BatchRows) -> int:
    """Tokens that our own pass computes: what rows share once, and not the last of each."""
    return rows.shared + rows.count * (rows.length - rows.shared - 1)
