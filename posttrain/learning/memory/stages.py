"""What the stages of this package hold at their moments, by the task that they are of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

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

_KEPT = 2
"""Checkpoints that stay where no config says how many (`models.checkpoint.Checkpointer`)."""

_AUTO_MOST, _AUTO_LEAST = 4096, 512
"""Bounds of `max_length: auto` (`training.lengths`)."""


def fine_tuning(asked: StageQuestion) -> list[Moment]:
    """Count next-token training: pretraining, SFT."""
    learner, (rows, accumulates) = asked.learner, _rows(asked, sides=1)
    batch = Batch(rows, accumulates=accumulates)
    return [*training_moments(asked.policy, learner, batch), *_sharding(asked.policy, learner)]


def rewarding(asked: StageQuestion) -> list[Moment]:
    """Count a reward model: it begins as a copy beside the policy, and is graded at the end."""
    learner, (rows, accumulates) = asked.learner, _rows(asked, sides=2)
    shapes, is_head = asked.policy, asked.says("parameterization", "likelihood") == "head"
    if is_head:
        scalar = shapes.parameters - shapes.head + shapes.hidden
        shapes = replace(shapes, parameters=scalar, head=0)
        rows = replace(rows, wanted=rows.count)
    batch = Batch(rows, accumulates=accumulates, has_head=not is_head)
    weights = held.weight_bytes(asked.policy)
    loading = Moment("loading", {POLICY: weights + held.weight_bytes(shapes) * is_head})
    graded = _scoring(shapes, learner, has_head=not is_head)
    grading = graded.beside({POLICY: held.weight_bytes(shapes)})
    moments = training_moments(shapes, learner, batch)
    return [loading, *moments, grading, *_sharding(shapes, learner)]


def preferring(asked: StageQuestion) -> list[Moment]:
    """Count preference optimization: the policy as it was stays beside the one that learns."""
    learner, (rows, accumulates) = asked.learner, _rows(asked, sides=2)
    algorithm = asked.says("algorithm", None)
    if getattr(algorithm, "optimism_coefficient", 0) or getattr(algorithm, "draws_own", False):
        # A pair then has a third row, of somebody's own sample.
        rows = replace(rows, count=rows.count * 3 // 2, wanted=rows.wanted * 3 // 2)
    beside = {REFERENCE: held.weight_bytes(asked.policy), OTHERS: _others(asked)}
    batch = Batch(rows, accumulates=accumulates, beside=beside)
    moments = training_moments(asked.policy, learner, batch)
    if asked.says("rounds", 0):
        drawing = _drawing(asked, rows=asked.says("sampling.num_samples", 8), of="sampling.")
        moments += _sampling(asked, drawing, {POLICY: held.held_weights(asked.policy, learner)})
    return [*moments, *_sharding(asked.policy, learner)]


def reinforcing(asked: StageQuestion) -> list[Moment]:
    """Count RL: updates, and sampling beside all that they keep."""
    policy, learner = asked.policy, asked.learner
    algorithm = asked.says("algorithm", None)
    needs = frozenset(getattr(algorithm, "needs", ()))
    ahead = asked.says("ahead", 0) * held.weight_bytes(policy)
    beside = {OTHERS: _others(asked, "reference") + ahead}
    reference = None
    if getattr(algorithm, "uses_reference", False):
        reference = asked.models.get("reference", policy)
        beside[REFERENCE] = 0 if _is_adapterless(asked) else held.weight_bytes(reference)
    drawn = asked.says("problems_per_step", 32) * asked.says("group_size", 8)
    answer = _answer(asked, "max_tokens")
    rows = _updated_rows(asked, answer, drawn // asked.says("updates.minibatches", 1))
    if getattr(algorithm, "critic", None) is not None:
        beside[VALUES] = _values(asked, rows)
    batch = Batch(
        rows,
        accumulates=drawn // asked.says("updates.minibatches", 1) > rows.count * asked.processes,
        with_entropy="entropy" in needs,
        with_distribution="distribution" in needs,
        reference=reference if "reference" in needs else None,
    )
    drawing = DrawnRows(
        min(_DRAWN, drawn),
        _prompt(asked),
        answer,
        group=asked.says("group_size", 8),
        waiting=drawn > _DRAWN,
    )
    if learner.processes > 1:
        # The engine draws from whole weights beside the shards.
        beside[POLICY] = held.weight_bytes(policy)
    always = _beside_trainer(asked)
    moments = [each.beside(always) for each in training_moments(policy, learner, batch)]
    moments += _sampling(asked, drawing, standing_bytes(policy, learner))
    return [*(each.beside(beside) for each in moments), *_sharding(policy, learner)]


def sampling_alone(asked: StageQuestion) -> list[Moment]:
    """Count a stage that only samples: all its models are loaded, and one of them draws."""
    group = asked.says("num_samples", 8)
    drawing = _drawing(asked, rows=asked.says("num_problems", 512) * group)
    weights = {POLICY: held.weight_bytes(asked.policy), OTHERS: _others(asked)}
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
    whole = asked.says("batch_tokens", 2048)
    budget = asked.says("micro_batch_tokens", None) or whole
    most = asked.says("max_length", "auto")
    if most == "auto":
        most = min(
            _AUTO_MOST, max(_AUTO_LEAST, budget // sides), asked.policy.context or _AUTO_MOST
        )
    count = max(1, budget // (sides * most))
    length = max(most, budget // (sides * count))
    parts, shared = -(-whole // max(budget, sides * most)), asked.processes
    if asked.says("learner.packing", otherwise=False):
        count, length, sides = 1, sides * count * length, 1
    elif parts < shared:
        count = -(-count * parts // shared)
    rows = BatchRows(count * sides, length, count * sides * (length - 1))
    return rows, parts > shared


def _updated_rows(asked: StageQuestion, answer: int, available: int) -> BatchRows:
    """The largest micro-batch of rollouts."""
    length = min(_prompt(asked) + answer, asked.policy.context or _prompt(asked) + answer)
    budget = asked.says("updates.micro_batch_tokens", 4096)
    count = min(max(1, budget // length), max(1, available // asked.processes))
    return BatchRows(count, length, count * answer)


def _answer(asked: StageQuestion, path: str) -> int:
    most = asked.says(path, "auto")
    return UNTAUGHT_LIMIT if most == "auto" else int(most)


def _prompt(asked: StageQuestion) -> int:
    return min(asked.prompt_tokens, asked.policy.context or asked.prompt_tokens)


def _drawing(asked: StageQuestion, *, rows: int, of: str = "") -> DrawnRows:
    """What a sampling config draws at once."""
    at_once, group = asked.says(f"{of}batch_size", 512), asked.says(f"{of}num_samples", 8)
    return DrawnRows(
        max(group, min(at_once, rows)),
        _prompt(asked),
        _answer(asked, f"{of}max_tokens"),
        group=group,
        waiting=rows > at_once,
    )


def _sampling(asked: StageQuestion, drawing: DrawnRows, weights: Mapping[str, int]) -> list[Moment]:
    """What the engine takes while it draws."""
    kind = getattr(asked.says("engine", None), "kind", "torch")
    if kind == "vllm":
        return [Moment("sampling", {CACHE: _share(asked)}).beside(weights)]
    if kind == "server":
        return []
    return [sampling_moment(asked.policy, asked.learner, drawing).beside(weights)]


def _share(asked: StageQuestion) -> int:
    """What vLLM takes of the device, weights of its own included."""
    return int(asked.says("engine.gpu_memory_utilization", 0.4) * asked.capacity)


def _beside_trainer(asked: StageQuestion) -> dict[str, int]:
    """What an engine holds while the policy learns."""
    kind = getattr(asked.says("engine", None), "kind", "torch")
    asleep = asked.says("engine.sleep", otherwise=False)
    return {CACHE: _share(asked)} if kind == "vllm" and not asleep else {}


def _others(asked: StageQuestion, *counted: str) -> int:
    """Weights of the further models that a stage loads."""
    return sum(
        held.weight_bytes(each) for port, each in asked.models.items() if port not in counted
    )


def _is_adapterless(asked: StageQuestion) -> bool:
    """Whether the reference is the policy without its adapters, which takes nothing."""
    moves = getattr(asked.says("reference", None), "MOVES", False)
    return asked.learner.lora is not None and "reference" not in asked.models and not moves


def _values(asked: StageQuestion, rows: BatchRows) -> int:
    """A value model on a trunk of its own: its weights, gradients, states and activations."""
    shapes = asked.policy
    if asked.says("critic.trunk", "own") == "shared":
        return 0
    plain = Learner(precision=asked.learner.precision, device=asked.device)
    trunk = replace(shapes, parameters=shapes.parameters - shapes.head, head=0)
    trained = held.WIDE * trunk.parameters + held.state_bytes(trunk, plain)
    kept = shapes.layers * activations.layer_bytes(shapes, plain, rows)
    return held.weight_bytes(shapes) + trained + kept


def _scoring(shapes: ModelShapes, learner: Learner, *, has_head: bool) -> Moment:
    """A reward model that is asked about many completions at once."""
    rows = BatchRows(1, _GRADED, _GRADED)
    plain = Learner(device=learner.device)
    logits = head.head_forward_bytes(shapes, rows) if has_head else 0
    return Moment(
        "scoring", {ACTIVATIONS: activations.layer_forward_bytes(shapes, plain, rows), HEAD: logits}
    )


def _sharding(shapes: ModelShapes, learner: Learner) -> list[Moment]:
    """Where several processes share a model: each loads it whole first, one puts it together."""
    if learner.processes == 1:
        return []
    whole, kept = held.weight_bytes(shapes), standing_bytes(shapes, learner)
    saving = Moment("saving", {POLICY: whole}).beside(kept)
    return [Moment("loading", {POLICY: whole + whole // learner.processes}), saving]


@dataclass(frozen=True)
class CheckpointSize:
    """Bytes on disk."""

    one: int
    """One that a killed run goes on from."""
    kept: int
    """All of them that stay at a time; 0 where none is written."""
    result: int
    """The model that the stage leaves."""


def checkpoint_size(asked: StageQuestion) -> CheckpointSize:
    """Count what the checkpoints of a stage that trains take.

    Each holds the weights that may have changed, the optimizer's states, and the moving average;
    with a value model of its own its weights and states, and a reference that moves.

    Args:
        asked: The stage.

    Returns:
        Bytes on disk.

    """
    policy = asked.policy
    # What several processes or the host hold is written all the same.
    learner = asked.changed("optimization.offload", value=False).learner
    weights = held.weight_bytes(policy, learner.weights)
    if learner.lora is not None:
        weights = held.WIDE * held.adapter_elements(policy, learner)
    one = weights + held.state_bytes(policy, learner) + held.average_bytes(policy, learner)
    if getattr(asked.says("reference", None), "MOVES", False):
        one += held.weight_bytes(policy)
    critic = getattr(asked.says("algorithm", None), "critic", None)
    if critic is not None and asked.says("critic.trunk", "own") == "own":
        one += 3 * held.WIDE * (policy.parameters - policy.head)
    writes = asked.says("checkpoint_every", 0) > 0
    kept = asked.says("checkpoints.keep", _KEPT)
    result = held.weight_bytes(policy, "bf16" if learner.computes_in == "bf16" else "fp32")
    adapter_alone = learner.lora is not None and asked.says("learner.lora.save", "") == "adapter"
    return CheckpointSize(one, kept * one if writes else 0, weights if adapter_alone else result)
