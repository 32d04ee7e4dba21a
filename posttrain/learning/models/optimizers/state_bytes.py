"""Bytes that optimizers remember of each number that they step, stated once."""

from collections.abc import Mapping

MOMENT_BYTES: Mapping[str, float] = {"fp32": 4, "8bit": 1 + 4 / 256}
"""Of one moment, by `optimization.states`; of 8 bits, 256 share a scale."""

MOMENTS: Mapping[str, int] = {"adamw": 2, "muon": 1}
"""Moments of a number, by the optimizer's name."""

PART_BYTES: Mapping[str, float] = {
    "adamw": MOMENTS["adamw"] * MOMENT_BYTES["fp32"],
    "muon": MOMENTS["muon"] * MOMENT_BYTES["fp32"],
    "adamw_8bit": MOMENTS["adamw"] * MOMENT_BYTES["8bit"],
}
"""Of a number, by the name of what `OptimizerPart.build` returns."""
