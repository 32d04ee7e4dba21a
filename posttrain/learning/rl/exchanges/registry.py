"""The exchanges that ship with posttrain."""

from posttrain.learning.rl.exchanges.alone import Alone
from posttrain.learning.rl.exchanges.base import Exchange
from posttrain.learning.rl.exchanges.observer import Observer
from posttrain.learning.rl.exchanges.swarm import Swarm
from posttrain.stage.slots import Slot

EXCHANGES = Slot(
    "exchange",
    Exchange,
    {"alone": Alone, "swarm": Swarm, "observer": Observer},
    one_of=("generations",),
)
