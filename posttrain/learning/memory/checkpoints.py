"""What a stage that trains writes to disk."""

from dataclasses import dataclass, replace

from posttrain.learning.memory import held
from posttrain.learning.memory.asked import StageQuestion


@dataclass(frozen=True)
class CheckpointSize:
    """Bytes on disk."""

    one: int
    """One that a killed run goes on from."""
    kept: int
    """All of them that stay at a time; 0 where none is written."""
    result: int
    """The model that the stage leaves."""
    budget: int | None = None
    """What all may take together; the newest stays also where it takes more."""


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
    learner = replace(asked.learner, states_on_host=False)
    weights = held.weight_bytes(policy, learner.weights)
    if learner.lora is not None:
        weights = held.WIDE * held.adapter_elements(policy, learner)
    one = weights + held.state_bytes(policy, learner) + held.average_bytes(policy, learner)
    if asked.has("updates"):
        one += _beside(asked)
    kept = _kept(asked, one) if asked.says("checkpoint_every") else 0
    result = held.weight_bytes(policy, "bf16" if learner.computes_in == "bf16" else "fp32")
    adapter_alone = learner.lora is not None and asked.says("learner.lora.save") == "adapter"
    left, budget = weights if adapter_alone else result, asked.says("learner.checkpoints.budget")
    return CheckpointSize(one, kept * one, left, None if budget is None else int(budget))


def _kept(asked: StageQuestion, one: int) -> int:
    """How many stay: the newest does, whatever the budget is."""
    checkpoints = asked.says("learner.checkpoints")
    within = checkpoints.keep if checkpoints.budget is None else int(checkpoints.budget) // one
    return max(1, min(int(checkpoints.keep), within))


def _beside(asked: StageQuestion) -> int:
    """What RL's learner writes beside the policy."""
    policy = asked.policy
    count = held.weight_bytes(policy) if asked.says("reference").MOVES else 0
    if asked.says("algorithm").critic is not None and asked.says("critic.trunk") == "own":
        count += 3 * held.WIDE * (policy.parameters - policy.head)
    return count
