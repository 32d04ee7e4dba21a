"""A balance says how much the rollouts of RL and each rehearsal count. In the recipe:

rl:
  updates: {balance: {kind: turns}}
"""

from typing import Literal

from posttrain.learning.rl.balances.base import OWN_ROLLOUTS, Balance, BalanceAtWork


class Turns(Balance):
    """Let the rehearsals count in every second step."""

    kind: Literal["turns"] = "turns"

    def start(self, objectives):
        return TakingTurns(objectives)


class TakingTurns(BalanceAtWork):
    def __init__(self, objectives):
        self.objectives, self.step = objectives, 0

    def weights(self):
        return {name: float(name == OWN_ROLLOUTS or self.step % 2) for name in self.objectives}

    def observe(self, measured):
        self.step += 1

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


PARTS = {"balance": {"turns": Turns}}
