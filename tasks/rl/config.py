"""Parameters of the stage: those of the loop that it runs."""

from posttrain.learning.rl.config import RlConfig as RlConfig
