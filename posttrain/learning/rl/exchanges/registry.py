"""The exchanges that ship with posttrain."""

from posttrain.learning.rl.exchanges.adversary import Adversary
from posttrain.learning.rl.exchanges.alone import Alone
from posttrain.learning.rl.exchanges.base import Exchange
from posttrain.learning.rl.exchanges.creator import Creator
from posttrain.learning.rl.exchanges.discussion import Discussion
from posttrain.learning.rl.exchanges.observer import Observer
from posttrain.learning.rl.exchanges.swarm import Swarm
from posttrain.learning.rl.exchanges.vote import Vote
from posttrain.stage.slots import Slot

EXCHANGES = Slot(
    "exchange",
    Exchange,
    {
        "alone": Alone,
        "swarm": Swarm,
        "observer": Observer,
        "vote": Vote,
        "discussion": Discussion,
        "adversary": Adversary,
        "creator": Creator,
    },
    one_of=("generations",),
)
