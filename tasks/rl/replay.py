"""Learning again from stored rollouts, which `posttrain replay` asks a task for under this name."""

from posttrain.learning.rl.replay import replay as replay
