"""Constraints on a text, by IFEval's groups: parts that a text follows or does not."""
