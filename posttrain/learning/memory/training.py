"""The moments of an optimizer step, in one process or as one of several that share a model.

Counted is a step that is not the first, so that the optimizer remembers already; where a step has
several micro-batches, a later one of them, beside whose activations all gradients stand.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from posttrain.learning.memory import activations, head, held
from posttrain.learning.memory.activations import BatchRows
from posttrain.learning.memory.learner import CPU, Learner
from posttrain.learning.memory.peak import (
    ACTIVATIONS,
    GATHERED,
    GRADIENTS,
    HEAD,
    POLICY,
    STATES,
    STEP,
    Moment,
)
from posttrain.learning.memory.shapes import ModelShapes


@dataclass(frozen=True)
class Batch:
    """A micro-batch, and what its loss asks of the model."""

    rows: BatchRows
    accumulates: bool = False
    """Whether a step has more than one."""
    has_head: bool = True
    """False of a model that gives a row one number."""
    with_entropy: bool = False
    with_distribution: bool = False
    reference: ModelShapes | None = None
    """What is asked about the same rows while the policy's activations stand."""
    beside: Mapping[str, int] = field(default_factory=dict)
    """Bytes by part that stand all the while: other models."""


def training_moments(shapes: ModelShapes, learner: Learner, batch: Batch) -> list[Moment]:
    """Count what stands at the moments of a step that may be its peak.

    Args:
        shapes: Of the model that learns.
        learner: How it learns.
        batch: Of one process.

    Returns:
        Moments by name, each with all that stands then.

    """
    fixed = standing_bytes(shapes, learner)
    moments = [*_passes(shapes, learner, batch), _step(shapes, learner)]
    return [each.beside(fixed).beside(batch.beside) for each in moments]


def standing_bytes(shapes: ModelShapes, learner: Learner) -> dict[str, int]:
    """Count what stands for as long as a model trains, in one process.

    Args:
        shapes: Of the model.
        learner: How it learns, and on what device.

    Returns:
        Bytes.

    """
    if learner.shards_on_host and learner.device != CPU:
        return {POLICY: 0, STATES: 0}
    shared = learner.processes
    kept = held.held_weights(shapes, learner) + held.average_bytes(shapes, learner)
    return {
        POLICY: kept // shared,
        STATES: held.state_bytes(shapes, learner) // shared,
    }


def _all_gradients(shapes: ModelShapes, learner: Learner) -> int:
    if learner.shards_on_host and learner.device != CPU:
        return 0
    elements = held.trained_elements(shapes, learner)
    return held.gradient_width(learner) * elements // learner.processes


def _passes(shapes: ModelShapes, learner: Learner, batch: Batch) -> Iterator[Moment]:
    """The forward pass at its end, and the backward pass from the head down to the embeddings."""
    kept = _kept(shapes, learner, batch.rows)
    earlier = _all_gradients(shapes, learner) if batch.accumulates else 0
    last_norm = activations.last_norm_bytes(shapes, learner, batch.rows)
    casts = activations.cast_bytes(shapes, learner)
    gathered = _Gathered.of(shapes, learner)

    logits, softmax = 0, 0
    if batch.has_head:
        logits = head.head_forward_bytes(shapes, batch.rows, with_entropy=batch.with_entropy)
        distribution = batch.with_distribution
        softmax = head.kept_bytes(shapes, batch.rows, with_distribution=distribution)
    widened = activations.widened_bytes(shapes, learner)
    within = widened
    if learner.recomputes:
        within += activations.layer_forward_bytes(shapes, learner, batch.rows)
    whole = sum(kept) + last_norm
    yield Moment(
        "forward pass",
        {
            ACTIVATIONS: whole + casts + (0 if logits > within else within),
            HEAD: logits if logits > within else 0,
            GRADIENTS: earlier,
            GATHERED: gathered.forward,
        },
    )
    if batch.reference is not None:
        yield _reference_pass(learner, batch, whole + casts, softmax, earlier)
    # What is computed again is cast again, layer by layer.
    casts = 0 if learner.recomputes else casts
    gradient = 0
    if batch.has_head:
        beside, gradient = head.head_backward_bytes(shapes, learner, batch.rows)
        yield Moment(
            "backward pass, head",
            {
                ACTIVATIONS: whole + casts,
                HEAD: softmax + beside,
                GRADIENTS: earlier + gradient,
                GATHERED: gathered.forward + gathered.layer,
            },
        )
        # A gradient of a head of its own joins those of earlier micro-batches at once.
        tied = not shapes.head or not batch.accumulates
        gradient = head.table_gradient(shapes, learner) if tied else 0
    yield from _layers(shapes, learner, batch, kept, casts, (earlier, gradient))
    yield _embeddings(shapes, learner, batch, (earlier, gradient), gathered)


def _layers(
    shapes: ModelShapes,
    learner: Learner,
    batch: Batch,
    kept: list[int],
    casts: int,
    gradients: tuple[int, int],
) -> Iterator[Moment]:
    """The backward pass in each layer, the last one first; the layers behind it are through."""
    width, gathered = held.gradient_width(learner), _Gathered.of(shapes, learner)
    trained = held.trained_elements(shapes, learner)
    # Without adapters embeddings and head are trained too, and theirs are counted apart.
    per_layer = shapes.per_layer if learner.lora is None else trained // shapes.layers
    work = activations.layer_backward_bytes(shapes, learner, batch.rows)
    widened = activations.widened_bytes(shapes, learner)
    stepping = held.step_bytes(shapes, learner) if learner.in_backward else 0
    on_host = learner.shards_on_host and learner.device != CPU
    matrix = width * shapes.largest_matrix if learner.lora is None else 0
    earlier, of_head = gradients
    for below in range(shapes.layers - 1, -1, -1):
        is_last = below == shapes.layers - 1
        again = 0
        if learner.recomputes:
            again = activations.layer_bytes(shapes, learner, batch.rows, is_last=is_last)
            again += activations.cast_bytes(shapes, learner) // shapes.layers
        behind = shapes.layers - 1 - below
        gone = earlier or learner.in_backward or on_host
        through = 0 if gone else width * per_layer * behind
        here = work
        if activations.is_own_pass(shapes, learner) and is_last:
            here = work * batch.rows.wanted // max(1, batch.rows.tokens)
        yield Moment(
            f"backward pass, layer {below + 1}",
            {
                ACTIVATIONS: sum(kept[: below + 1])
                + again
                + casts * (below + 1) // shapes.layers
                + here
                + widened,
                GRADIENTS: earlier + of_head + matrix + through // learner.processes,
                GATHERED: gathered.backward,
                STEP: stepping,
            },
        )


def _embeddings(
    shapes: ModelShapes,
    learner: Learner,
    batch: Batch,
    gradients: tuple[int, int],
    gathered: "_Gathered",
) -> Moment:
    """The end of the backward pass: the gradient of the embeddings, as large as they are."""
    earlier, of_head = gradients
    table = held.gradient_width(learner) * shapes.embedding if learner.lora is None else 0
    if of_head and not shapes.head:
        # Tied: added to that of the head, which has waited for it.
        table = (head.ADDED - 1) * table
    through = 0
    if not earlier and _all_gradients(shapes, learner) and not learner.in_backward:
        of_tables = held.gradient_width(learner) * (shapes.embedding + shapes.head)
        tables = of_tables if learner.lora is None else 0
        through = _all_gradients(shapes, learner) - tables // learner.processes
    return Moment(
        "backward pass, embeddings",
        {
            ACTIVATIONS: activations.entry_bytes(shapes, learner, batch.rows),
            GRADIENTS: earlier + of_head + table + through,
            GATHERED: gathered.forward,
            STEP: held.step_bytes(shapes, learner) if learner.in_backward else 0,
        },
    )


def _step(shapes: ModelShapes, learner: Learner) -> Moment:
    gradients = 0 if learner.in_backward else _all_gradients(shapes, learner)
    return Moment("step", {GRADIENTS: gradients, STEP: held.step_bytes(shapes, learner)})


def _kept(shapes: ModelShapes, learner: Learner, rows: BatchRows) -> list[int]:
    """What the forward pass keeps of each layer."""
    if learner.recomputes:
        return [activations.entry_bytes(shapes, learner, rows)] * shapes.layers
    kept = [activations.layer_bytes(shapes, learner, rows)] * (shapes.layers - 1)
    return [*kept, activations.layer_bytes(shapes, learner, rows, is_last=True)]


def _reference_pass(
    learner: Learner, batch: Batch, whole: int, softmax: int, earlier: int
) -> Moment:
    """What another model says of the rows, before the policy's backward pass begins."""
    assert batch.reference is not None
    within = activations.layer_forward_bytes(batch.reference, learner, batch.rows)
    logits = head.head_forward_bytes(batch.reference, batch.rows)
    return Moment(
        "reference pass",
        {
            ACTIVATIONS: whole + (within if within > logits else 0),
            HEAD: softmax + (0 if within > logits else logits),
            GRADIENTS: earlier,
        },
    )


@dataclass(frozen=True)
class _Gathered:
    """Whole weights and gradients of FSDP2's units, which one process of several has for a while.

    Embeddings, head and last norm are one unit, which stays whole from its first use to its last.
    """

    forward: int = 0
    layer: int = 0
    backward: int = 0

    @classmethod
    def of(cls, shapes: ModelShapes, learner: Learner) -> "_Gathered":
        if learner.processes == 1:
            return cls()
        layer = held.WIDE * shapes.per_layer
        tables = held.WIDE * (shapes.embedding + shapes.head)
        # Of a layer its weights, those of the one before, which are fetched ahead, and gradients
        # twice, as they are laid out to be summed.
        return cls(forward=tables, layer=layer, backward=tables + 4 * layer)
