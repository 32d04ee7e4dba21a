"""Gradients that a stage computes, against those of a formula that shares no line with it."""
