"""Which problems an earlier run of RL says are worth training on."""
