"""The slot of the action masks: what a part of it implements."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from posttrain.stage.slots import Part, name_of

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from posttrain.learning.models.load import Policy


class TokenMask:
    """A started mask; `state_dict` holds what it changes from step to step."""

    @abstractmethod
    def at(
        self, input_ids_BT: "Tensor", wanted_BT: "Tensor", temperature: float
    ) -> "Callable[[int, int], Tensor]":
        """Say which tokens may stand where some are wanted, by what stands before each.

        The engine asks it of the token that comes next, the learner of those that were drawn; what
        it says may depend on the tokens before, the temperature and this mask's state alone.

        Args:
            input_ids_BT: Token ids, right-padded.
            wanted_BT: True at N tokens, counted row by row; none is the first of its row.
            temperature: That the policy draws with; above 0.

        Returns:
            A function of two places `begin` and `end` among the N: True at the tokens that may
            stand there, ``[end - begin, V]``, one in each row at least.

        """
        raise NotImplementedError

    def observe(self, policy: "PreTrainedModel", *, step: int) -> None:
        """Take note of a step.

        Args:
            policy: The policy's model as it is after the step, which is only read.
            step: 0-based step that is over.

        """

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as tensors and plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""


class ActionMask(Part):
    """Which tokens the policy may draw; it is renormalized over them, as it draws and learns.

    Drawing reads the whole text anew for each token, where without a mask a token is read once: the
    time for an answer grows with the square of its length. It is for a few dozen tokens.
    """

    def remarks(self) -> tuple[str, ...]:
        """Say what drawing costs; see `StageConfig.remarks`."""
        return (
            "draw.mask: each token is drawn by reading the whole text before it"
            " anew, so that time grows with the square of an answer's length; it is for answers of"
            " a few dozen tokens",
        )

    def beyond_processes(self, processes: int) -> str | None:
        """Say that it is asked with the whole policy; see `StageConfig.beyond_processes`."""
        if processes == 1:
            return None
        return (
            f"{name_of(self)} is asked with the whole policy, but resources.processes has a part"
            " of it in each; leave one of the two out"
        )

    def start(self, policy: "Policy") -> TokenMask:
        """Begin a run with the policy as it is before the first step."""
        raise NotImplementedError
