"""The engines that ship with posttrain."""

from posttrain.learning.rollouts.engines.engine import Engine
from posttrain.learning.rollouts.engines.kinds.masked_diffusion import MaskedDiffusionEngine
from posttrain.learning.rollouts.engines.kinds.server import ServerEngine
from posttrain.learning.rollouts.engines.kinds.torch import TorchEngine
from posttrain.learning.rollouts.engines.kinds.vllm import VllmEngine
from posttrain.stage.slots import Slot

ENGINES = Slot(
    "engine",
    Engine,
    {
        "torch": TorchEngine,
        "vllm": VllmEngine,
        "server": ServerEngine,
        "masked_diffusion": MaskedDiffusionEngine,
    },
    one_of=("open",),
)
