"""What sampling takes beside the weights: keys and values, and the logits that are drawn from."""

from dataclasses import dataclass

from posttrain.learning.memory import activations
from posttrain.learning.memory.activations import NUMBER_WIDTHS, BatchRows
from posttrain.learning.memory.held import WIDE
from posttrain.learning.memory.learner import CPU, Learner
from posttrain.learning.memory.peak import CACHE, Moment
from posttrain.learning.memory.shapes import ModelShapes
from posttrain.learning.rollouts.engines.llama import FEWEST, IN_CACHE, LARGEST

_FUSED = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
"""Matrices that the decoder of small Llamas copies, as it multiplies several at once."""

_DRAWN_ON_CPU, _DRAWN_ON_GPU = 3, 10
"""Tensors of the size of the logits that a draw holds: they, their softmax and running totals; on a
GPU the totals come about in float64, in blocks (`rollouts.engines.decode`)."""


@dataclass(frozen=True)
class DrawnRows:
    """What is drawn at once."""

    rows: int
    prompt: int
    """Tokens of the longest prompt."""
    answer: int
    """Most tokens of an answer."""
    group: int = 1
    """Samples of a prompt."""
    waiting: bool = False
    """Whether there are more than `rows` of them, which take the places of those that end."""


def sampling_moment(shapes: ModelShapes, learner: Learner, drawing: DrawnRows) -> Moment:
    """Count what the engine of this package takes beside the policy.

    Args:
        shapes: Of the policy.
        learner: Its numbers, and the device; defaults where nothing is trained.
        drawing: How much is drawn at once.

    Returns:
        The moment at which all rows are as long as they may get.

    """
    count = _by_decoder if _is_own_decoder(shapes, learner) else _by_slots
    return Moment("sampling", {CACHE: count(shapes, learner, drawing)})


def position_bytes(shapes: ModelShapes, width: int) -> int:
    """Count keys and values of one position of one row, in numbers of so many bytes.

    Args:
        shapes: Of the model.
        width: Bytes of a number.

    Returns:
        Bytes.

    """
    return 2 * shapes.layers * shapes.keys * width


def _is_own_decoder(shapes: ModelShapes, learner: Learner) -> bool:
    narrow = learner.computes_in == "bf16" or learner.lora is not None
    return shapes.is_plain and not narrow and shapes.parameters <= LARGEST


def _by_decoder(shapes: ModelShapes, learner: Learner, drawing: DrawnRows) -> int:
    """Keys of prompts once, those of answers for each row; and matrices that are laid out anew."""
    rows, per_position = drawing.rows, position_bytes(shapes, WIDE)
    if learner.device == CPU:
        positions = min(drawing.prompt + drawing.answer, shapes.context)
        rows = min(rows, max(FEWEST, IN_CACHE // (per_position * positions)))
    group = min(drawing.group, rows)
    rows = rows // group * group
    prompts = rows // group * drawing.prompt
    keys = per_position * (prompts + rows * drawing.answer)
    fused = WIDE * sum(
        each.elements for each in shapes.linears if each.name.rpartition(".")[2] in _FUSED
    )
    return keys + fused + rows * shapes.vocabulary * WIDE * _drawn(learner)


def _by_slots(shapes: ModelShapes, learner: Learner, drawing: DrawnRows) -> int:
    """A place for every position of every row, and prompts while they are read."""
    width = NUMBER_WIDTHS["bf16"].inner if learner.computes_in == "bf16" else WIDE
    columns = drawing.prompt + drawing.answer
    if drawing.waiting:
        columns += columns // 4
    slots = position_bytes(shapes, width) * drawing.rows * columns
    prompts = max(1, drawing.rows // drawing.group)
    read = BatchRows(prompts, drawing.prompt, prompts)
    reading = position_bytes(shapes, width) * read.tokens
    reading += activations.layer_forward_bytes(shapes, learner, read)
    drawn = drawing.rows * shapes.vocabulary * WIDE * _drawn(learner)
    return slots + max(reading, drawn)


def _drawn(learner: Learner) -> int:
    return _DRAWN_ON_CPU if learner.device == CPU else _DRAWN_ON_GPU
