"""The base of every part of an algorithm: what it needs, how it is summed up, what it refuses."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator

from posttrain.stage.part_schema import PartsByName
from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import Part, Slot

NEEDS: Mapping[str, str] = {
    # Once, of the whole generation, before the first update.
    "values": "the critic's value before each token",
    "rewards_reference": "the reference policy's log-probabilities, where the reward pays for them",
    "turns": "the turn of each token, and each turn's reward",
    "states": "the state that each turn starts from",
    "turn_values": "what values learned from stored episodes say of each turn",
    "generation_entropy": "the policy's entropy at each token before the first update",
    "token_ids": "the ids of the drawn tokens",
    "windows": "how much of a rollout earlier steps drew, and whether it goes on in a later one",
    "generation_logprobs": "the engine's log-probabilities of the drawn tokens",
    "old_logprobs": "the policy's log-probabilities before the first update",
    # With every part of every update.
    "reference": "the reference policy's log-probabilities",
    "entropy": "the current policy's entropy at each token, without gradient",
    "entropy_gradient": "the same with its gradient, by a pass of its own",
    "distribution": "the current policy's log-probabilities of the whole vocabulary at each drawn"
    " token, with their gradient; `V` numbers a token, so smaller micro-batches",
    "reference_divergence": "what a regularizer makes of the policy's whole distribution at each"
    " drawn token and the reference's, slice by slice, so without more memory",
    "group_statistics": "mean and deviation of the rewards of each rollout's whole group",
    "vocabulary_ratio": "how much likelier each token of the vocabulary became, on average",
    "whole_groups": "that all rollouts of a group go through the model together",
}
"""What a part may ask the learner for; the learner computes what is asked, and nothing else."""

KNOWN_WHEN_DRAWN = frozenset({"turns", "states", "windows", "generation_logprobs"})
"""Of these what rollouts bring along: all that is there when groups are told apart by rewards."""


class AlgorithmFacts(NamedTuple):
    """What a part may know of the algorithm that it stands in."""

    old_policy: str
    """Which policy the ratio compares with."""
    aggregation: str
    """How the losses of tokens become one number."""
    varies_within_rollouts: bool
    """True where the tokens of one rollout may have different advantages."""
    rewards_alone: bool = False
    """True where the sign of an advantage is that of the rollout's own reward."""


class AlgorithmPart(Part, Schedulable):
    """A part of an algorithm; its numbers may be schedules, and are numbers where it is used."""

    @property
    def needs(self) -> frozenset[str]:
        """Names of `NEEDS`; a part whose needs go by its fields overrides this."""
        return self.NEEDS

    def describe(self) -> str:
        """Sum the part up in some words, for lists and logs."""
        return str(self.kind)

    def refusal(self, algorithm: AlgorithmFacts) -> str | None:
        """Say why the part cannot work in such an algorithm, with the remedy; None where it can."""
        return None


def named_parts(slot: Slot[Any]) -> BeforeValidator:
    """Let a field take a mapping of parts as a recipe spells it.

    A part's kind is its name unless it says otherwise; one that is null is left out; and the order
    is that of the slot, then that of the names, so that sums do not depend on the spelling.

    Args:
        slot: Where the parts are from.

    Returns:
        What is done before the field is validated; what is no mapping is left for that.

    """

    def complete(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        full = {
            str(name): {"kind": name, **each} if isinstance(each, Mapping) else each
            for name, each in value.items()
            if each is not None
        }
        kinds = list(slot.parts)

        def place(name: str) -> tuple[int, str]:
            each = full[name]
            kind = each.get("kind") if isinstance(each, Mapping) else getattr(each, "kind", None)
            return (kinds.index(kind) if kind in kinds else len(kinds), name)

        return {name: full[name] for name in sorted(full, key=place)}

    spelled = Annotated[dict[str, Any], PartsByName(slot)]
    return BeforeValidator(complete, json_schema_input_type=spelled)
