"""Tokens of a batch as a mixture of experts sends them to its experts."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class RoutedRows:
    """Tokens of a micro-batch as they go through a model."""

    input_ids_BT: Tensor
    learned_BT: Tensor
    """True at tokens that bear loss; what comes after the last of a row is padding."""
    position_ids_BT: Tensor | None = None
    """Of packed rows."""

    @property
    def real_BT(self) -> Tensor:
        """False at padding."""
        after_BT = self.learned_BT.flip(-1).cumsum(-1).flip(-1)
        return after_BT > 0
