"""Parameters of the stage: those of the loop that it runs."""

from posttrain.learning.rl.several_config import SeveralConfig as SeveralConfig
