"""Whether several processes compute the tokens of a batch together, as a forward pass asks it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol

from torch import Tensor

_share: "TokenShare | None" = None


class OwnTokens(NamedTuple):
    """The tokens that this process computes, as one packed row."""

    ids_1T: Tensor
    positions_1T: Tensor
    before_1T: Tensor
    """True where the next token is wanted."""
    targets_N: Tensor
    """The wanted tokens that follow own ones."""
    together: Callable[[Tensor], Tensor]
    """From numbers of these ``[N]`` to those of all wanted tokens, row by row."""


class TokenShare(Protocol):
    """Takes a process's share of the tokens of a batch."""

    def taking(
        self, input_ids_BT: Tensor, wanted_BT: Tensor, position_ids_BT: Tensor | None
    ) -> AbstractContextManager[OwnTokens]:
        """Give the tokens to compute, while they are computed.

        Args:
            input_ids_BT: Token ids, right-padded or packed, equal in all processes.
            wanted_BT: True at the tokens whose log-probability is wanted.
            position_ids_BT: Of packed rows.

        Returns:
            A context of this process's tokens.

        """
        ...


def token_share() -> TokenShare | None:
    """What this process takes of every batch; None where it computes all tokens itself."""
    return _share


@contextmanager
def share_tokens(share: TokenShare) -> Iterator[None]:
    """Compute a share of the tokens of every batch, inside.

    Not by thread: a GPU's backward pass, in which layers are recomputed, has threads of its own.

    Args:
        share: What this process takes.

    """
    global _share  # noqa: PLW0603 - see above
    _share = share
    try:
        yield
    finally:
        _share = None
