"""Preference optimization: objectives, references, rounds; called by tasks.preference."""
