"""The reward components that ship with posttrain, by kind."""

from posttrain.learning.rewards.components.base import Component
from posttrain.learning.rewards.components.verifier import VerifierComponent
from posttrain.stage.slots import Slot

COMPONENTS = Slot(
    "component", Component, {"verifier": VerifierComponent}, one_of=("score", "score_all")
)
