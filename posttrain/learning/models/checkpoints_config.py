"""How many checkpoints stay, and who writes them."""

from pydantic import ByteSize, Field

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
