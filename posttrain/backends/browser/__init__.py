"""A browser without a window that computes for whoever asks, by pipes and without TCP."""
