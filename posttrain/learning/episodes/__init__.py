"""Episodes: what a policy and an environment say to each other, turn by turn, as tokens."""
