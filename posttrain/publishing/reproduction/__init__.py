"""Run again what was run, away from the workspace, and say whether it came out as recorded.

A room of its own: `posttrain verify` asks it of runs and `posttrain release rebuild` of releases.
"""
