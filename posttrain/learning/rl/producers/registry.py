"""The producers that ship with posttrain."""

from posttrain.learning.rl.producers.base import Producer
from posttrain.learning.rl.producers.before_failure import BeforeFailure
from posttrain.learning.rl.producers.branched import Branched
from posttrain.learning.rl.producers.episodes import Episodes
from posttrain.learning.rl.producers.greedy_first import GreedyFirst
from posttrain.learning.rl.producers.guided import Guided
from posttrain.learning.rl.producers.hinted import Hinted
from posttrain.learning.rl.producers.noised import Noised
from posttrain.learning.rl.producers.partial import Partial
from posttrain.learning.rl.producers.plain import Plain
from posttrain.learning.rl.producers.two_orders import TwoOrders
from posttrain.learning.rl.producers.windows import Windows
from posttrain.stage.slots import Slot

PRODUCERS = Slot(
    "producer",
    Producer,
    {
        "plain": Plain,
        "episodes": Episodes,
        "partial": Partial,
        "greedy_first": GreedyFirst,
        "hinted": Hinted,
        "before_failure": BeforeFailure,
        "branched": Branched,
        "guided": Guided,
        "two_orders": TwoOrders,
        "windows": Windows,
        "noised": Noised,
    },
    one_of=("start",),
)
