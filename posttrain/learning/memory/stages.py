"""What the stages of this package hold at their moments, by the task that they are of."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from posttrain.learning.memory import activations, head, held
from posttrain.learning.memory.activations import BatchRows
from posttrain.learning.memory.asked import StageQuestion
from posttrain.learning.memory.learner import Learner
from posttrain.learning.memory.peak import (
    ACTIVATIONS,
    CACHE,
    HEAD,
    OTHERS,
    POLICY,
    REFERENCE,
    VALUES,
    Moment,
)
from posttrain.learning.memory.sampling import DrawnRows, sampling_moment
from posttrain.learning.memory.shapes import ModelShapes
from posttrain.learning.memory.training import Batch, standing_bytes, training_moments
from posttrain.learning.models.record import UNTAUGHT_LIMIT

_GRADED = 16384
"""Tokens that a reward model is asked about at once (`RewardModel.score`)."""

_DRAWN = 512
"""Rows that RL's engine draws together (`engines.config.open_engine`)."""

_AUTO_MOST, _AUTO_LEAST = 4096, 512
"""Bounds of `max_length: auto` (`training.lengths`)."""


def fine_tuning(asked: StageQuestion) -> list[Moment]:
    """Count next-token training: pretraining, SFT."""
    learner, (rows, accumulates) = asked.learner, _rows(asked, sides=1)
    batch = Batch(rows, accumulates=accumulates)
    return [
        *training_moments(asked.policy, learner, batch),
        *_beginning_and_end(asked.policy, asked),
    ]


def rewarding(asked: StageQuestion) -> list[Moment]:
    """Count a reward model: it takes over the policy's weights, and is graded at the end."""
    learner, (rows, accumulates) = asked.learner, _rows(asked, sides=2)
    shapes, is_head = asked.policy, asked.says("parameterization") == "head"
    if is_head:
        scalar = shapes.parameters - shapes.head + shapes.hidden
        shapes = replace(shapes, parameters=scalar, head=0)
        rows = replace(rows, wanted=rows.count)
    batch = Batch(rows, accumulates=accumulates, has_head=not is_head)
    loading = Moment("loading", {POLICY: held.weight_bytes(asked.policy)})
    graded = _scoring(shapes, learner, has_head=not is_head)
    grading = graded.beside({POLICY: held.weight_bytes(shapes)})
    moments = training_moments(shapes, learner, batch)
    return [loading, *moments, grading, *_beginning_and_end(shapes, asked)]


def preferring(asked: StageQuestion) -> list[Moment]:
    """Count preference optimization.

    What is needed of the policy as it was are numbers, taken before the first step; it stands
    beside the one that learns where rounds or samples ask it again, and once more for the report.

    Args:
        asked: The stage.

    Returns:
        What is held at its peaks.

    """
    learner, (rows, accumulates) = asked.learner, _rows(asked, sides=2)
    algorithm = asked.says("algorithm")
    if algorithm.optimism_coefficient or algorithm.draws_own:
        # A pair then has a third row, of somebody's own sample.
        rows = replace(rows, count=rows.count * 3 // 2, wanted=rows.wanted * 3 // 2)
    is_mixed, rounds = asked.says("opponent") == "mixture", asked.says("rounds")
    has_copy = learner.lora is None or is_mixed
    copied = held.weight_bytes(asked.policy, learner.weights) if has_copy else 0
    stays = bool(rounds or algorithm.draws_own)
    beside = {REFERENCE: copied * stays, OTHERS: _others(asked)}
    batch = Batch(rows, accumulates=accumulates, beside=beside)
    moments = training_moments(asked.policy, learner, batch)
    weights = {POLICY: held.held_weights(asked.policy, learner), REFERENCE: copied}
    moments.append(_asking("report", asked.policy, learner, rows).beside(weights))
    if rounds:
        drawing = _drawing(asked, rows=asked.says("sampling.num_samples"), of="sampling.")
        moments.append(sampling_moment(asked.policy, learner, drawing).beside(weights))
    return [*moments, *_beginning_and_end(asked.policy, asked)]


def reinforcing(asked: StageQuestion) -> list[Moment]:
    """Count RL: updates, and sampling beside all that they keep."""
    policy, learner = asked.policy, asked.learner
    algorithm = asked.says("algorithm")
    needs = frozenset(algorithm.needs)
    ahead = asked.says("ahead") * held.weight_bytes(policy)
    beside = {OTHERS: _others(asked, "reference") + ahead}
    reference = None
    if algorithm.uses_reference:
        reference = asked.models.get("reference", policy)
        beside[REFERENCE] = _reference_bytes(asked, reference)
    drawn = asked.says("problems_per_step") * asked.says("group_size")
    at_once = drawn // asked.says("updates.minibatches")
    answer = _answer(asked, "max_tokens")
    rows = _updated_rows(asked, answer, at_once)
    if algorithm.critic is not None:
        beside[VALUES] = _values(asked, rows)
    batch = Batch(
        rows,
        accumulates=at_once > rows.count * asked.processes,
        with_entropy="entropy" in needs,
        with_distribution="distribution" in needs,
        reference=reference if "reference" in needs else None,
    )
    drawing = DrawnRows(
        min(_DRAWN, drawn),
        _prompt(asked),
        answer,
        group=asked.says("group_size"),
        waiting=drawn > _DRAWN,
    )
    always = _beside_trainer(asked)
    moments = [each.beside(always) for each in training_moments(policy, learner, batch)]
    drawn_from = Moment("sampling", standing_bytes(policy, learner))
    if learner.processes > 1:
        # Whole weights beside the shards, which are gone before the first backward pass.
        drawn_from = drawn_from.beside({POLICY: held.weight_bytes(policy, learner.weights)})
    moments += _sampling(asked, drawing, drawn_from.parts)
    return [*(each.beside(beside) for each in moments), *_beginning_and_end(policy, asked)]


def sampling_alone(asked: StageQuestion) -> list[Moment]:
    """Count a stage that only samples: of several policies one at a time is there, and draws."""
    # An evaluation has all problems of its table, and a probe may.
    problems = (asked.says("num_problems") if asked.has("num_problems") else None) or _DRAWN
    drawing = _drawing(asked, rows=problems * asked.says("num_samples"))
    policies = [port for port in asked.models if port.startswith("policies.")]
    largest = max([asked.policy, *map(asked.models.__getitem__, policies)], key=held.weight_bytes)
    weights = {POLICY: held.weight_bytes(largest), OTHERS: _others(asked, *policies)}
    if asked.has("variants") and asked.says("variants"):
        # The first one stays, as a variant asks it beside the others.
        weights[OTHERS] += held.weight_bytes(asked.policy)
    moments = _sampling(asked, drawing, weights)
    graders = [each for port, each in asked.models.items() if port == "reward_model"]
    scored = [_scoring(each, Learner(device=asked.device), has_head=True) for each in graders]
    return moments + [each.beside(weights) for each in scored]


TASKS: Mapping[str, Callable[[StageQuestion], list[Moment]]] = {
    "pretrain": fine_tuning,
    "sft": fine_tuning,
    "denoise": fine_tuning,
    "reward": rewarding,
    "preference": preferring,
    "rl": reinforcing,
    "probe": sampling_alone,
    "evaluate": sampling_alone,
}
"""By the name of the task in its package; what has no entry is not counted."""


def _rows(asked: StageQuestion, *, sides: int) -> tuple[BatchRows, bool]:
    """The largest micro-batch of rows or pairs, and whether a step has several.

    Rows are as long as they may be. Where `max_length` goes by the data, they are taken to fill a
    micro-batch, as longer ones make the limit that nobody knows yet.
    """
    whole = asked.says("batch_tokens")
    budget = asked.says("micro_batch_tokens") or whole
    most = asked.says("max_length")
    if most == "auto":
        most = min(
            _AUTO_MOST, max(_AUTO_LEAST, budget // sides), asked.policy.context or _AUTO_MOST
        )
    count = max(1, budget // (sides * most))
    length = max(most, budget // (sides * count))
    parts, shared = -(-whole // max(budget, sides * most)), asked.processes
    if asked.learner.shares_tokens:
        # Every process is at every micro-batch.
        length, shared = -(-length // shared), 1
    if asked.says("learner.packing"):
        count, length, sides = 1, sides * count * length, 1
    elif parts < shared:
        count = -(-count * parts // shared)
    rows = BatchRows(count * sides, length, count * sides * (length - 1))
    return rows, parts > shared


def _updated_rows(asked: StageQuestion, answer: int, available: int) -> BatchRows:
    """The largest micro-batch of rollouts."""
    length = min(_prompt(asked) + answer, asked.policy.context or _prompt(asked) + answer)
    budget = asked.says("updates.micro_batch_tokens")
    count = min(max(1, budget // length), max(1, available // asked.processes))
    return BatchRows(count, length, count * answer)


def _answer(asked: StageQuestion, path: str) -> int:
    most = asked.says(path)
    return UNTAUGHT_LIMIT if most == "auto" else int(most)


def _prompt(asked: StageQuestion) -> int:
    return min(asked.prompt_tokens, asked.policy.context or asked.prompt_tokens)


def _drawing(asked: StageQuestion, *, rows: int, of: str = "") -> DrawnRows:
    """What a sampling config draws at once."""
    at_once, group = asked.says(f"{of}batch_size"), asked.says(f"{of}num_samples")
    return DrawnRows(
        max(group, min(at_once, rows)),
        _prompt(asked),
        _answer(asked, f"{of}max_tokens"),
        group=group,
        waiting=rows > at_once,
    )


def _sampling(asked: StageQuestion, drawing: DrawnRows, weights: Mapping[str, int]) -> list[Moment]:
    """What the engine takes while it draws."""
    kind = asked.says("engine.kind")
    if kind == "vllm":
        return [Moment("sampling", {CACHE: _share(asked)}).beside(weights)]
    if kind == "server":
        return []
    return [sampling_moment(asked.policy, asked.learner, drawing).beside(weights)]


def _share(asked: StageQuestion) -> int:
    """What vLLM takes of the device, weights of its own included."""
    return int(asked.says("engine.gpu_memory_utilization") * asked.capacity)


def _beside_trainer(asked: StageQuestion) -> dict[str, int]:
    """What an engine holds while the policy learns."""
    kind = asked.says("engine.kind")
    return {CACHE: _share(asked)} if kind == "vllm" and not asked.says("engine.sleep") else {}


def _others(asked: StageQuestion, *counted: str) -> int:
    """Weights of the further models that a stage loads."""
    return sum(
        held.weight_bytes(each) for port, each in asked.models.items() if port not in counted
    )


def _reference_bytes(asked: StageQuestion, reference: ModelShapes) -> int:
    """Weights of RL's reference: none of its own where it is the policy without its adapters."""
    moves, learner = asked.says("reference").MOVES, asked.learner
    if learner.lora is not None and "reference" not in asked.models and not moves:
        return 0
    # One that moves is float32, as small steps would be lost in fewer bits.
    return held.weight_bytes(reference, "fp32" if moves else learner.weights)


def _values(asked: StageQuestion, rows: BatchRows) -> int:
    """A value model on a trunk of its own: its weights, gradients, states and activations."""
    shapes = asked.policy
    if asked.says("critic.trunk") == "shared":
        return 0
    plain = Learner(precision=asked.learner.precision, device=asked.device)
    trunk = replace(shapes, parameters=shapes.parameters - shapes.head, head=0)
    trained = held.WIDE * trunk.parameters + held.state_bytes(trunk, plain)
    kept = shapes.layers * activations.layer_bytes(shapes, plain, rows)
    return held.weight_bytes(shapes) + trained + kept


def _scoring(shapes: ModelShapes, learner: Learner, *, has_head: bool) -> Moment:
    """A reward model that is asked about many completions at once."""
    rows = BatchRows(1, _GRADED, _GRADED if has_head else 0)
    return _asking("scoring", shapes, Learner(device=learner.device), rows)


def _asking(name: str, shapes: ModelShapes, learner: Learner, rows: BatchRows) -> Moment:
    """A pass that keeps nothing."""
    within = activations.layer_forward_bytes(shapes, learner, rows)
    logits = head.head_forward_bytes(shapes, rows)
    return Moment(name, {ACTIVATIONS: within, HEAD: logits})


def _beginning_and_end(shapes: ModelShapes, asked: StageQuestion) -> list[Moment]:
    """Loading and saving, where a model then is larger than while it trains."""
    learner = asked.learner
    if learner.holds_base:
        return _widening(shapes, asked)
    return _sharding(shapes, learner) if learner.processes > 1 else []


def _widening(shapes: ModelShapes, asked: StageQuestion) -> list[Moment]:
    """Frozen weights: as they are stored until each is narrowed; at the end float32, to merge."""
    largest = held.WIDE * max(shapes.largest_matrix, shapes.embedding, shapes.head)
    shares = asked.processes if asked.learner.reads_by_rows else 1
    loading = Moment("loading", {POLICY: shapes.stored * shapes.parameters // shares + largest})
    if asked.says("learner.lora.save") == "adapter":
        return [loading]
    whole = held.weight_bytes(shapes) + held.WIDE * held.adapter_elements(shapes, asked.learner)
    return [loading, Moment("merging", {POLICY: whole})]


def _sharding(shapes: ModelShapes, learner: Learner) -> list[Moment]:
    """Where several processes share a model: one of them puts it together to save it.

    Each reads its own rows; all of it first where some rows are not enough.
    """
    whole = held.weight_bytes(shapes, learner.weights)
    kept = standing_bytes(shapes, learner)
    saving = Moment("saving", {POLICY: whole}).beside(kept)
    if learner.reads_by_rows:
        return [saving]
    return [Moment("loading", {POLICY: whole + whole // learner.processes}), saving]
