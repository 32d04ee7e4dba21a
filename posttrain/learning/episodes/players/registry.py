"""The players that ship with posttrain, by kind."""

from posttrain.learning.episodes.players.base import Player
from posttrain.learning.episodes.players.checkpoint import CheckpointPlayer
from posttrain.learning.episodes.players.earlier import EarlierPlayer
from posttrain.learning.episodes.players.endpoint import EndpointPlayer
from posttrain.learning.episodes.players.person import PersonPlayer
from posttrain.learning.episodes.players.policy import PolicyPlayer
from posttrain.learning.episodes.players.present import PresentPlayer
from posttrain.learning.episodes.players.script import ScriptPlayer
from posttrain.stage.slots import Slot

PLAYERS = Slot(
    "player",
    Player,  # type: ignore[type-abstract]
    {
        "policy": PolicyPlayer,
        "present": PresentPlayer,
        "earlier": EarlierPlayer,
        "checkpoint": CheckpointPlayer,
        "endpoint": EndpointPlayer,
        "script": ScriptPlayer,
        "person": PersonPlayer,
    },
    one_of=("sit",),
)
