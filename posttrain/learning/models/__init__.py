"""Models: build, load, save, log-probabilities, optimisers, reward heads, checkpoints."""
