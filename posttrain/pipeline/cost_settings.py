"""The section `cost` of a recipe: what things cost, and how much of them a run may take."""

from pydantic import Field

from posttrain.provenance.ledger.usage import Usage
from posttrain.stage.config import StageConfig

_HOUR, _KWH = 3600.0, 3.6e6


class Budget(StageConfig):
    """What one run may take; a stage that would go beyond is stopped, and none begins after it."""

    cpu_hours: float | None = Field(default=None, gt=0)
    """Hours of processor cores."""
    gpu_hours: float | None = Field(default=None, gt=0)
    """Hours of GPUs held."""
    money: float | None = Field(default=None, gt=0)
    """In `currency`, at the stated rates."""


class CostSettings(StageConfig):
    """What an hour costs; no part of any stage, and so of no key."""

    currency: str = Field(default="USD", min_length=1, max_length=8)
    """What the rates are in."""
    cpu_hour: float | None = Field(default=None, ge=0)
    """Of one core."""
    gpu_hour: float | None = Field(default=None, ge=0)
    """Of one GPU."""
    kwh: float | None = Field(default=None, ge=0)
    """Of energy, where it is not in the price of the hours."""
    budget: Budget = Budget()
    """What one run may take."""

    def money(self, usage: Usage) -> float | None:
        """Compute what a usage costs.

        Args:
            usage: Of a stage, a run, or more.

        Returns:
            In `currency`; None where no rate is stated.

        """
        parts = [
            (self.cpu_hour, (usage.cpu_seconds or 0.0) / _HOUR),
            (self.gpu_hour, usage.gpu_seconds / _HOUR),
            (self.kwh, (usage.joules or 0.0) / _KWH),
        ]
        stated = [rate * amount for rate, amount in parts if rate is not None]
        return sum(stated) if stated else None

    def beyond(self, usage: Usage) -> str:
        """Say which budget a usage goes beyond.

        Args:
            usage: Of the run so far.

        Returns:
            A phrase such as `2.01 of 2 GPU hours (cost.budget.gpu_hours)`; empty within the budget.

        """
        taken = [
            ("cpu_hours", (usage.cpu_seconds or 0.0) / _HOUR, "CPU hours"),
            ("gpu_hours", usage.gpu_seconds / _HOUR, "GPU hours"),
            ("money", self.money(usage) or 0.0, self.currency),
        ]
        for name, amount, unit in taken:
            most = getattr(self.budget, name)
            if most is not None and amount > most:
                return f"{amount:.3g} of {most:g} {unit} (cost.budget.{name})"
        return ""

    @property
    def limited(self) -> bool:
        """Whether any budget is stated."""
        return self.budget != Budget()
