"""Reinforcement learning: drawing, credit, the learner and its loop; called by tasks.rl."""
