"""Which tokens may be drawn at all: one mask for what samples and what is trained."""
