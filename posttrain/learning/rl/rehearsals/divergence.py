"""A divergence from the policy that RL began with, on what that one answered before."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rl.rehearsals.base import Rehearsal, RehearsalRow

if TYPE_CHECKING:
    from torch import Tensor


class DivergenceRehearsal(Rehearsal):
    """Hold the policy to the answers of the one that it began as, by `f(u)` with `u = p / p_0`.

    On samples of p_0 the mean of `f(u)` estimates the divergence D_f(p || p_0), so that no second
    model is kept: `u - 1 - log u` is the forward KL(p_0 || p); `u log u - (u + 1) log((u + 1) / 2)`
    is twice the Jensen-Shannon divergence. Both keep p where p_0 was, need no sample of p, and have
    no slope at u = 1.
    """

    SOURCE = (
        "DPH-RL, arXiv 2509.07430, section 4; seamoke/DPH-RL at 139a9b2,"
        " verl/trainer/ppo/core_algos.py (js_low_var), workers/actor/dp_actor.py (sft_loss_mode)"
    )

    kind: Literal["divergence"] = "divergence"
    """On samples of the policy that RL began with, which its probe gives."""
    generator: Literal["forward", "jensen_shannon"] = "forward"
    """The function f, which names the divergence."""
    least_solved: float = Field(default=1.0, ge=0.0, le=1.0)
    """Rows are of problems that were solved at least this often in the table."""

    def admits(self, row: RehearsalRow) -> bool:
        """Only what was mastered is rehearsed; see `Rehearsal.admits`."""
        return row.solve_rate >= self.least_solved

    def token_loss(self, logprobs_BT: "Tensor", begun_BT: "Tensor") -> "Tensor":
        """Give `f(u)`; see `Rehearsal.token_loss`."""
        import torch

        log_u_BT = logprobs_BT - begun_BT
        if self.generator == "forward":
            return torch.expm1(log_u_BT) - log_u_BT
        u_BT = log_u_BT.exp()
        # log((u + 1) / 2) by softplus, as u may be large.
        half_BT = torch.nn.functional.softplus(log_u_BT) - torch.log(log_u_BT.new_tensor(2.0))
        return u_BT * log_u_BT - (u_BT + 1) * half_BT
