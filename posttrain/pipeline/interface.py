"""Framework code that is in no stage's key, as it stands between a stage and whoever runs it.

What these modules hand over (parameters, seed, threads, device) is in the key by value; how they
report progress and mistakes cannot change a result.
"""

INTERFACE = (
    # Which actor does what decides nothing about its result.
    "posttrain.backends.cluster",
    "posttrain.stage.errors",
    "posttrain.stage.artifact_kinds",
    "posttrain.stage.config",
    "posttrain.stage.context",
    "posttrain.stage.installed",
    "posttrain.stage.part_checks",
    "posttrain.stage.part_schema",
    "posttrain.stage.resources",
    "posttrain.stage.slots",
    "posttrain.stage.spec",
)
"""Modules and packages whose source no closure takes in."""

FRAMEWORK = "posttrain"
"""The package, and the distribution, whose extras a stage may do without."""
