"""Problem samplers: which problems a step draws, and the state that decides it."""
