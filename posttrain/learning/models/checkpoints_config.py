"""How many checkpoints stay, and who writes them."""

from typing import Any

from pydantic import ByteSize, Field, TypeAdapter, ValidationError, field_validator

from posttrain.stage.config import StageConfig


class CheckpointsConfig(StageConfig):
    """What becomes of the checkpoints that `checkpoint_every` asks for; it changes no result."""

    keep: int = Field(default=2, ge=1)
    """Most checkpoints that stay; the newest ones do."""
    budget: ByteSize | None = Field(default=None, gt=0)
    """Most bytes that they may take together, such as 200GB; the newest stays whatever it takes,
    and null sets no bound."""
    in_background: bool = True
    """Copy the state to memory and write it while the next steps run; false lets them wait."""

    @field_validator("budget", mode="before")
    @classmethod
    def _readable(cls, budget: Any) -> Any:
        if isinstance(budget, str):
            try:
                TypeAdapter(ByteSize).validate_python(budget)
            except ValidationError:
                raise ValueError(
                    "write a number of bytes and a unit such as MB, GB, TB or GiB, as in 200GB,"
                    f" got {budget!r}"
                ) from None
        return budget
