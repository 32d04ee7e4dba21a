"""What the words and figures of printed tables mean: a line below each table, for who is new."""

import sys

import click

LEGENDS = {
    "action": "run: it is made anew; restore: it comes from the cache; pending: decided once what"
    " it reads is made; last took: its last execution, of whatever parameters",
    "cost": "clock: from when a stage had its devices; CPU hours: of one core; GPU hours: devices"
    " held times the hours; kWh: where the machine has counters (RAPL, NVML); tokens drawn: by"
    " policies, those of teachers and judges behind endpoints left out",
    "difference": "difference: after minus before; in brackets its 95% interval, paired by problem."
    " Without brackets it was measured once on each side, so chance may have moved it",
    "gate": "gate: a condition of recipe.yaml (release.gates) for a release;"
    " docs/releases.md has the rules",
    "artifacts": "up to date: made by this code, these parameters and inputs; out of date: they"
    " changed since; behind its inputs: decided once these are made; digest: beginning of the"
    " SHA-256 of its bytes",
    "collect": "goes: removed by posttrain gc without --dry-run; stays: needed, and why",
    "compared": "agrees: equal, or within what the level allows; differs: not; not comparable:"
    " something is missing on one side; not asked: shown, and no part of the verdict",
    "figures": "95% interval: over problems; seeds: evaluations that were pooled",
    "runs": "before, after: value in the first and in the second run; cause: the first part of the"
    " key that differs",
    "schedules": "missed: what becomes of runs at whose time nobody was there (skip, latest,"
    " backfill:N); last, next: by the clock of its time zone",
    "stages": "succeeded: ran now; cached: was up to date; restored: came from the cache; took: the"
    " execution behind it, whenever that was",
    "ticks": "due: when the clock said so; outcome: what became of it; with -v every step",
    "policies": "pass@k: one of k samples is right; maj@k: the most frequent answer is;"
    " best@k: the reward model's choice is; gain: points of pass@1 over the policy it was trained"
    " from; won, lost: problems solved by at least half of the samples now and not before, or the"
    " other way; tokens: mean length",
}
"""Legends by the name of what they explain."""


def say_legend(*names: str) -> None:
    """Print legends below a table, dimmed; nothing where the output is not a terminal's.

    Args:
        names: Of `LEGENDS`, in the order of the table.

    """
    if sys.stdout.isatty():
        for name in names:
            click.secho(LEGENDS[name], dim=True)
