"""What the output head takes: chunks of logits, their softmax, and the gradient of its weight.

`models.logprobs` computes `CHUNK_ELEMENTS` logits at a time and, where there are more, computes
each chunk again in the backward pass.
"""

from posttrain.learning.memory.activations import BatchRows
from posttrain.learning.memory.held import NARROW, WIDE, gradient_width
from posttrain.learning.memory.learner import Learner
from posttrain.learning.memory.shapes import ModelShapes
from posttrain.learning.models.logprobs import CHUNK_ELEMENTS

_FORWARD, _WITH_ENTROPY, _BACKWARD = 2, 5, 3
"""Chunks that stand at once: logits and their log-softmax; for the entropy once more, its
exponential and their product; log-softmax and two gradients."""


ADDED = 3
"""Tensors that stand while autograd adds two gradients of one weight: both, and their sum."""


def chunk_bytes(shapes: ModelShapes, rows: BatchRows) -> int:
    """Count the bytes of the logits that exist at a time.

    Args:
        shapes: Of the model.
        rows: The micro-batch.

    Returns:
        Bytes.

    """
    at_once = max(1, CHUNK_ELEMENTS // shapes.vocabulary)
    return WIDE * shapes.vocabulary * min(rows.wanted, at_once)


def is_chunked(shapes: ModelShapes, rows: BatchRows) -> bool:
    """Tell whether the wanted tokens take more than one chunk.

    Args:
        shapes: Of the model.
        rows: The micro-batch.

    Returns:
        True where it does.

    """
    return rows.wanted > max(1, CHUNK_ELEMENTS // shapes.vocabulary)


def kept_bytes(shapes: ModelShapes, rows: BatchRows, *, with_distribution: bool = False) -> int:
    """Count what the head keeps for its backward pass: one chunk's softmax, of several nothing.

    Where a soft cap follows, what it gave too.

    Args:
        shapes: Of the model.
        rows: The micro-batch.
        with_distribution: A loss reads the log-probabilities of the whole vocabulary.

    Returns:
        Bytes.

    """
    all_of_it = WIDE * shapes.vocabulary * rows.wanted if with_distribution else 0
    return all_of_it + (0 if is_chunked(shapes, rows) else _of_chunk(shapes, rows))


def head_forward_bytes(shapes: ModelShapes, rows: BatchRows, *, with_entropy: bool = False) -> int:
    """Count what the forward pass of the head holds at its most.

    Args:
        shapes: Of the model.
        rows: The micro-batch.
        with_entropy: True where the entropy of each distribution is wanted too.

    Returns:
        Bytes.

    """
    at_once = _WITH_ENTROPY if with_entropy else _FORWARD
    return (at_once + shapes.caps_logits) * chunk_bytes(shapes, rows)


def table_gradient(shapes: ModelShapes, learner: Learner) -> int:
    """Count the bytes of the gradient of the head's weight; nothing where it is frozen.

    Args:
        shapes: Of the model.
        learner: How it learns, and on what device.

    Returns:
        Bytes.

    """
    elements = (shapes.head or shapes.embedding) if learner.lora is None else 0
    return gradient_width(learner) * elements


def head_backward_bytes(shapes: ModelShapes, learner: Learner, rows: BatchRows) -> tuple[int, int]:
    """Count what the backward pass of the head holds beside what was kept, at its most.

    Either while a chunk's softmax is differentiated, beside the gradient of the weight that earlier
    chunks have left; or while the chunk's own is computed; or while autograd adds the two, which it
    does in a third place.

    Args:
        shapes: Of the model.
        learner: How it learns, and on what device.
        rows: The micro-batch.

    Returns:
        Bytes of logits, and of gradients of the weight.

    """
    chunk, gradient = chunk_bytes(shapes, rows), table_gradient(shapes, learner)
    chunked = is_chunked(shapes, rows)
    narrow = NARROW * chunk // WIDE if learner.computes_in == "bf16" else 0
    kept = 0 if chunked else _of_chunk(shapes, rows)
    softmax = ((_BACKWARD + shapes.caps_logits) * chunk - kept, gradient if chunked else 0)
    product = (chunk - kept + narrow, gradient * (2 if chunked else 1))
    adding = (0, ADDED * gradient if chunked else 0)
    return max(softmax, product, adding, key=sum)


def _of_chunk(shapes: ModelShapes, rows: BatchRows) -> int:
    """What a chunk's backward pass reads: its softmax, and what a soft cap gave."""
    return (1 + shapes.caps_logits) * chunk_bytes(shapes, rows)
