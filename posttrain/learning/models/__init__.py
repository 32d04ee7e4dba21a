"""Models: build, load, save, log-probabilities, optimizers, reward heads, checkpoints."""
