"""One metric over all runs, and which of them were released."""

import json
from dataclasses import dataclass

from posttrain.provenance.ledger import Ledger
from posttrain.provenance.ledger.reading import IS_DONE, read_edges

_NAMED = f"SELECT DISTINCT metrics FROM stage_runs WHERE {IS_DONE}"
_MEASURED = (
    "SELECT s.run_id,s.stage,s.metrics,s.key,s.derivation,r.started,r.recipe,r.git_commit"
    " FROM stage_runs s JOIN runs r ON r.id=s.run_id"
    f" WHERE s.{IS_DONE} AND s.metrics LIKE :holds ORDER BY s.num"
)


@dataclass(frozen=True)
class MeasuredFigure:
    """A metric's value in one run, with the interval where its stage measured one."""

    run_id: str
    stage: str
    recipe: str
    started: float
    commit: str | None
    value: float
    low: float | None
    high: float | None
    repeated: bool
    """The run took over what an earlier one had made."""
    releases: tuple[str, ...]
    """That hold what was measured, or what it was measured on."""


def metric_names(ledger: Ledger) -> list[str]:
    """Name every metric that any run measured.

    Args:
        ledger: That remembers them.

    Returns:
        By name, those of an evaluation first.

    """
    names = {name for text in ledger.store.column(_NAMED) for name in json.loads(text)}
    return sorted(names, key=lambda name: (not name.startswith("evaluate/"), name))


def history_of_metric(ledger: Ledger, name: str) -> list[MeasuredFigure]:
    """Read what a metric was in every run.

    Args:
        ledger: That remembers it.
        name: Such as ``evaluate/rl/pass_at_1``.

    Returns:
        Oldest first; of a run that tried a stage twice the last.

    """
    released: dict[str, list[str]] = {}
    for release in ledger.annotations.releases():
        for member in release.members:
            released.setdefault(member.digest, []).append(release.tag)
    rows = ledger.store.query(_MEASURED, {"holds": f'%"{name}"%'})
    edges = read_edges(ledger.store, [row.derivation for row in rows]) if released else {}
    seen: set[str] = set()
    found: dict[tuple[str, str], MeasuredFigure] = {}
    for row in rows:
        metrics = json.loads(row.metrics)
        if name not in metrics:
            continue
        sides = edges.get(row.derivation, ((), ()))
        tags = [tag for side in sides for each in side for tag in released.get(each.digest, ())]
        found[row.run_id, row.stage] = MeasuredFigure(
            run_id=row.run_id,
            stage=row.stage,
            recipe=row.recipe,
            started=row.started,
            commit=row.git_commit,
            value=float(metrics[name]),
            low=metrics.get(f"{name}_low"),
            high=metrics.get(f"{name}_high"),
            repeated=row.key in seen,
            releases=tuple(dict.fromkeys(tags)),
        )
        seen.add(row.key)
    return list(found.values())
