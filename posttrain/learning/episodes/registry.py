"""The environments that ship with posttrain, worlds among them."""

from posttrain.learning.episodes.environments.base import Environment
from posttrain.learning.episodes.environments.calculator import Calculator
from posttrain.learning.episodes.environments.corpus import CorpusSearch
from posttrain.learning.episodes.environments.mcp import Mcp
from posttrain.learning.episodes.environments.openenv import OpenEnv
from posttrain.learning.episodes.environments.python import Python
from posttrain.learning.episodes.environments.several import Several
from posttrain.learning.episodes.environments.single import Single
from posttrain.learning.episodes.worlds.bandit import Bandit
from posttrain.learning.episodes.worlds.booking import Booking
from posttrain.learning.episodes.worlds.delegation import Delegation
from posttrain.learning.episodes.worlds.doors import Doors
from posttrain.learning.episodes.worlds.facts import FactSearch
from posttrain.learning.episodes.worlds.guess import Guess
from posttrain.learning.episodes.worlds.household import Household
from posttrain.learning.episodes.worlds.kuhn import Kuhn
from posttrain.learning.episodes.worlds.minigrid import MiniGrid
from posttrain.learning.episodes.worlds.miniwob import MiniWoB
from posttrain.learning.episodes.worlds.products import Products
from posttrain.learning.episodes.worlds.reasoning_gym import GymTries
from posttrain.learning.episodes.worlds.relay import Relay
from posttrain.learning.episodes.worlds.repair import Repair
from posttrain.learning.episodes.worlds.search import SimulatedSearch
from posttrain.learning.episodes.worlds.shop import Shop
from posttrain.learning.episodes.worlds.sql import Sql
from posttrain.learning.episodes.worlds.textarena import TextArena
from posttrain.learning.episodes.worlds.textworld import TextWorld
from posttrain.learning.episodes.worlds.tictactoe import TicTacToe
from posttrain.learning.episodes.worlds.twenty_questions import TwentyQuestions
from posttrain.learning.episodes.worlds.verifiers import VerifiersWorld
from posttrain.stage.slots import Slot

EPISODE_ENVIRONMENTS = Slot(
    "environment",
    Environment,  # type: ignore[type-abstract]
    {
        "single": Single,
        "calculator": Calculator,
        "corpus": CorpusSearch,
        "python": Python,
        "several": Several,
        "mcp": Mcp,
        "openenv": OpenEnv,
        "bandit": Bandit,
        "booking": Booking,
        "delegation": Delegation,
        "doors": Doors,
        "facts": FactSearch,
        "guess": Guess,
        "gym_tries": GymTries,
        "household": Household,
        "kuhn": Kuhn,
        "minigrid": MiniGrid,
        "relay": Relay,
        "search": SimulatedSearch,
        "shop": Shop,
        "textworld": TextWorld,
        "textarena": TextArena,
        "miniwob": MiniWoB,
        "products": Products,
        "repair": Repair,
        "sql": Sql,
        "tictactoe": TicTacToe,
        "twenty_questions": TwentyQuestions,
        "verifiers": VerifiersWorld,
    },
    one_of=("start",),
)
