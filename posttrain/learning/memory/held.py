"""What stands as long as a model trains: weights, gradients, what the optimizer remembers.

One entry a format: bytes of a number, by the name that a recipe has for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from posttrain.learning.memory.learner import CPU, Learner
from posttrain.learning.memory.shapes import ModelShapes
from posttrain.learning.models.one_by_one import MANY_ELEMENTS, PIECE_ELEMENTS
from posttrain.learning.models.optimizers.state_bytes import MOMENT_BYTES, MOMENTS

WIDE, NARROW = 4, 2
"""Bytes of a number of float32, and of bfloat16."""


@dataclass(frozen=True)
class HeldFormat:
    """Bytes of a weight of each sort."""

    matrices: float
    """Linear layers of the stack."""
    tables: float | None
    """Embeddings and head; None as they are stored in the checkpoint."""
    others: float
    """Norms, biases."""


WEIGHT_FORMATS: Mapping[str, HeldFormat] = {
    "fp32": HeldFormat(4, 4, 4),
    "bf16": HeldFormat(2, 2, 2),
    # 4 bits, a scale of 8 bits for 64 weights, and one of 32 for 256 scales (QLoRA, arXiv
    # 2305.14314, section 3).
    "nf4": HeldFormat(0.5 + 1 / 64 + 4 / (64 * 256), None, 4),
}
"""By `learner.weights`."""

ROUNDINGS: Mapping[str | None, float] = {"kahan": NARROW}
"""Bytes that remember what was rounded off a weight of bfloat16, by `optimization.rounding`."""


def weight_bytes(shapes: ModelShapes, kind: str = "fp32") -> int:
    """Count the bytes of a model's weights.

    Args:
        shapes: Of the model.
        kind: How they are held, a key of `WEIGHT_FORMATS`.

    Returns:
        Bytes.

    """
    held = WEIGHT_FORMATS[kind]
    tables = shapes.embedding + shapes.head
    others = shapes.parameters - tables - shapes.matrices
    per_table = shapes.stored if held.tables is None else held.tables
    return int(held.matrices * shapes.matrices + per_table * tables + held.others * others)


def adapter_elements(shapes: ModelShapes, learner: Learner) -> int:
    """Count the weights of the adapters: `rank x (in + out)` for each adapted layer.

    DoRA has one more for each row.

    Args:
        shapes: Of the model.
        learner: How it learns, and on what device.

    Returns:
        Elements.

    """
    if learner.lora is None:
        return 0
    ends, rank = learner.lora.targets, learner.lora.rank
    lengths = int(learner.lora.dora)
    return sum(
        rank * (each.width_in + each.width_out) + lengths * each.width_out
        for each in shapes.linears
        if not ends or any(each.name == end or each.name.endswith(f".{end}") for end in ends)
    )


def trained_elements(shapes: ModelShapes, learner: Learner) -> int:
    """Count the weights that get a gradient: all of them, or those of the adapters.

    Args:
        shapes: Of the model.
        learner: How it learns, and on what device.

    Returns:
        Elements.

    """
    return shapes.parameters if learner.lora is None else adapter_elements(shapes, learner)


def held_weights(shapes: ModelShapes, learner: Learner) -> int:
    """Count the bytes of the policy, with its adapters.

    Args:
        shapes: Of the model.
        learner: How it learns, and on what device.

    Returns:
        Bytes.

    """
    return weight_bytes(shapes, learner.weights) + WIDE * adapter_elements(shapes, learner)


def gradient_width(learner: Learner) -> int:
    """Bytes of a number of a gradient: as those of what is trained."""
    return NARROW if learner.computes_in == "bf16" else WIDE


def state_bytes(shapes: ModelShapes, learner: Learner) -> int:
    """Count the bytes that the optimizer remembers on the device, of all processes together.

    Muon takes the matrices and keeps its momentum in float32; AdamW takes the rest.

    Args:
        shapes: Of the model.
        learner: How it learns, and on what device.

    Returns:
        Bytes.

    """
    if learner.states_on_host and learner.device != CPU:
        return 0
    trained, of_matrices = trained_elements(shapes, learner), shapes.matrices
    if learner.lora is not None:
        of_matrices = trained
    per_moment = MOMENT_BYTES[learner.states]
    kept: float = MOMENTS["adamw"] * per_moment * trained
    if learner.optimizer == "muon":
        rest = MOMENTS["adamw"] * per_moment * (trained - of_matrices)
        kept = MOMENTS["muon"] * WIDE * of_matrices + rest
    if learner.computes_in == "bf16":
        kept += ROUNDINGS.get(learner.rounding, 0) * trained
    return int(kept)


def average_bytes(shapes: ModelShapes, learner: Learner) -> int:
    """Count the bytes of the moving average, which is of float32.

    Args:
        shapes: Of the model.
        learner: How it learns, and on what device.

    Returns:
        Bytes.

    """
    return WIDE * trained_elements(shapes, learner) if learner.averages else 0


def step_bytes(shapes: ModelShapes, learner: Learner) -> int:
    """Count what a step of the optimizer needs for as long as it lasts.

    AdamW's fused step works in place; weights of bfloat16 and offloaded states go piece by piece,
    each in float32 (`models.one_by_one`). Muon holds all updates, and of the matrices of one shape
    a stack, two steps of its iteration and two products of the shorter side (`models.muon`).

    Args:
        shapes: Of the model.
        learner: How it learns, and on what device.

    Returns:
        Bytes.

    """
    largest = max(shapes.largest_matrix, shapes.embedding)
    if learner.lora is not None:
        largest = adapter_elements(shapes, learner) // max(1, len(shapes.linears))
    if learner.optimizer != "muon":
        one_by_one = learner.computes_in == "bf16" or learner.in_backward or learner.states_on_host
        # The last piece of a weight is less than two of the others.
        piece = 2 * PIECE_ELEMENTS.get(learner.device, MANY_ELEMENTS)
        return 4 * WIDE * min(largest, piece) if one_by_one else 0
    if learner.lora is not None:
        return 4 * WIDE * adapter_elements(shapes, learner)
    return WIDE * shapes.matrices + max(map(_iteration, _by_shape(shapes)), default=0)


def _iteration(stack: tuple[int, int, int]) -> int:
    """Bytes of Newton-Schulz on `count` matrices of `short x long`."""
    count, short, long = stack
    return WIDE * count * (3 * short * long + 2 * short * short)


def _by_shape(shapes: ModelShapes) -> list[tuple[int, int, int]]:
    """Count, shorter and longer side of the matrices of each shape, transposes together."""
    counts: dict[tuple[int, int], int] = {}
    for each in shapes.linears:
        short, long = sorted((each.width_in, each.width_out))
        counts[short, long] = counts.get((short, long), 0) + 1
    return [(count, *sides) for sides, count in counts.items()]
