"""Parameters of a verdict: what the claim says, word by word."""

from pydantic import Field

from posttrain.methods.claim import Amount, ClaimDecision, MechanismCheck
from posttrain.stage.config import StageConfig


class VerdictConfig(StageConfig):
    """A claim, spelled out for the arms of an experiment."""

    method: str
    """Whose claim it is."""
    claim: str
    """Its name."""
    arms: tuple[str, ...] = Field(min_length=1)
    """Names of the arms, the method's own first."""
    base: str = "sft"
    """The policy of the evaluation that the arena's contract is about."""
    contract: tuple[MechanismCheck, ...] = ()
    """What must hold of the base, by metrics of the evaluation."""
    mechanism: tuple[MechanismCheck, ...] = ()
    """What must have happened in the method's own arm."""
    matched: Amount = "rollouts"
    """What is equal between the arms."""
    updates_per_step: dict[str, int] = Field(default_factory=dict)
    """Optimizer updates in each step of an arm's curve, 1 where it is not named."""
    tolerance: float = Field(default=0.02, ge=0.0)
    """Share by which the arms may differ in it."""
    decide: tuple[ClaimDecision, ...] = Field(min_length=1)
    """What is compared with what, and by how much."""
    seeds: int = Field(ge=1)
    """Runs of each arm."""
