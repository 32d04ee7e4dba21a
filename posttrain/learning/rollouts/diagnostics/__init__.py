"""Diagnostics: what is measured of the artifacts that stages made, policy by policy."""
