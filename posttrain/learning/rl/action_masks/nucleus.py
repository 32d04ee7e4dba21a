"""The likeliest tokens by the policy of some steps ago."""

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from posttrain.learning.rl.action_masks.base import ActionMask, TokenMask

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from posttrain.learning.models.load import Policy


class Nucleus(ActionMask):
    """The smallest set of tokens with a given mass under a copy of the policy, renewed in time.

    Special tokens may always be drawn, so that an answer can end anywhere. Each token that is drawn
    takes a pass of the policy and one of its copy over the whole text before it: for answers of a
    few dozen tokens.
    """

    SOURCE = "NLPO, arXiv 2210.01241, section 4 and algorithm 1"

    kind: Literal["nucleus"] = "nucleus"
    top_p: float = Field(default=0.9, gt=0.0, le=1.0)
    """Mass of the set; the token with which it is reached is in it."""
    least: int = Field(default=1, ge=1)
    """Likeliest tokens that may be drawn whatever their mass."""
    every: int = Field(default=5, ge=1)
    """Steps after which the copy is made anew."""

    def start(self, policy: "Policy") -> TokenMask:
        """Copy the policy; see `ActionMask.start`."""
        return EarlierNucleus(self, policy)


class EarlierNucleus(TokenMask):
    """The copy, and when it is made anew."""

    def __init__(self, config: Nucleus, policy: "Policy") -> None:
        from posttrain.learning.rollouts.engines.stop import end_tokens

        self._config = config
        self.model = copy.deepcopy(policy.model).eval().requires_grad_(requires_grad=False)
        ends = end_tokens(policy.model, policy.tokenizer)
        self._special = sorted({*ends, *policy.tokenizer.all_special_ids})

    def at(
        self, input_ids_BT: "Tensor", wanted_BT: "Tensor", temperature: float
    ) -> "Callable[[int, int], Tensor]":
        """Ask the copy; its states are kept, its logits made by the slice; see `TokenMask.at`."""
        import torch

        from posttrain.learning.models.next_token import head_logits, states_before

        # Engine and learner ask in one precision, else a token at the border may be in one's alone.
        with torch.no_grad(), torch.autocast(input_ids_BT.device.type, enabled=False):
            states_ND = states_before(self.model, input_ids_BT, wanted_BT=wanted_BT)

        def allowed(begin: int, end: int) -> "Tensor":
            with torch.no_grad():
                logits_NV = head_logits(self.model, states_ND[begin:end]) / temperature
                allowed_NV = likeliest_set(
                    logits_NV, top_p=self._config.top_p, least=self._config.least
                )
            allowed_NV[:, self._special] = True
            return allowed_NV

        return allowed

    def observe(self, policy: "PreTrainedModel", *, step: int) -> None:
        """Become the policy behind every so many steps; see `TokenMask.observe`."""
        if (step + 1) % self._config.every:
            return
        for own, new in zip(self.model.parameters(), policy.parameters(), strict=True):
            own.copy_(new.detach())

    def state_dict(self) -> dict[str, Any]:
        """The copy's weights."""
        return dict(self.model.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.model.load_state_dict(state)


def likeliest_set(logits_NV: "Tensor", *, top_p: float, least: int = 1) -> "Tensor":
    """Find the likeliest tokens that have a given mass together (Holtzman et al., 2019).

    Args:
        logits_NV: Of N distributions.
        top_p: The mass; a token is in while that of those before it is below.
        least: Likeliest tokens that are in whatever their mass.

    Returns:
        True at the tokens of each set, ``[N, V]``.

    """
    import torch

    from posttrain.learning.rollouts.engines.decode import running_totals

    ordered_NV, places_NV = logits_NV.softmax(-1).sort(stable=True, dim=-1, descending=True)
    inside_NV = running_totals(ordered_NV) - ordered_NV < top_p
    inside_NV[:, :least] = True
    return torch.zeros_like(inside_NV).scatter_(-1, places_NV, inside_NV)
