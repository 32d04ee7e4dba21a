"""What the checkpoints of a stage take on disk."""

from dataclasses import dataclass

from posttrain.learning.memory import held
from posttrain.learning.memory.asked import Asked

_KEPT = 2
"""Checkpoints that stay where no config says how many (`models.checkpoint.Checkpointer`)."""


@dataclass(frozen=True)
class CheckpointSize:
    """Bytes on disk."""

    one: int
    """One that a killed run goes on from."""
    kept: int
    """All of them that stay at a time; 0 where none is written."""
    result: int
    """The model that the stage leaves."""


def checkpoint_size(asked: Asked) -> CheckpointSize:
    """Count what the checkpoints of a stage that trains take.

    Each holds the weights that may have changed, the optimizer's states, and the moving average;
    with a value model of its own its weights and states, and a reference that moves.

    Args:
        asked: The stage.

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
