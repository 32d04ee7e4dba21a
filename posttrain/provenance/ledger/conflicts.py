"""One key, several results: not reproducible, or something that no key knows differed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from posttrain.provenance.circumstances import differences
from posttrain.provenance.ledger.reading import StageRunReader
from posttrain.provenance.ledger.records import StageRun
from posttrain.provenance.ledger.store import Store, query_in

_KEYS = (
    "SELECT s.key FROM stage_runs s JOIN derivations d ON d.num=s.derivation"
    " WHERE s.status='succeeded'{chosen} GROUP BY s.key HAVING COUNT(DISTINCT d.outputs_sha)>1"
)
_NEWEST = (
    "num IN (SELECT MAX(s.num) FROM stage_runs s JOIN derivations d ON d.num=s.derivation"
    " WHERE s.key IN ({values}) AND s.status='succeeded' GROUP BY s.key,d.outputs_sha)"
)


@dataclass(frozen=True)
class Conflict:
    """One key under which a stage made different outputs.

    `runs` holds the newest stage run of each distinct set of outputs, newest first.
    """

    key: str
    stage: str
    runs: tuple[StageRun, ...]

    @property
    def comparable(self) -> bool:
        """True where two of the runs were made with the same kernels, and so ought to be equal."""
        pairs = combinations([run.circumstances for run in self.runs], 2)
        return any(not differences(*pair) for pair in pairs)


def conflicts(store: Store, keys: Sequence[str] | None = None) -> list[Conflict]:
    """Find keys with more than one set of outputs.

    Args:
        store: The ledger's database.
        keys: The keys to look at; None for all that there are.

    Returns:
        Each with its stage runs, in order of key.

    """
    if keys is None:
        rows = store.query(_KEYS.replace("{chosen}", ""))
    else:
        chosen = _KEYS.replace("{chosen}", " AND s.key IN ({values})")
        rows = query_in(store, chosen, sorted(set(keys)))
    found: dict[str, list[StageRun]] = {}
    for run in StageRunReader(store).where_in(_NEWEST, sorted(row.key for row in rows)):
        found.setdefault(run.key, []).append(run)
    return [Conflict(key, runs[0].stage, tuple(runs)) for key, runs in sorted(found.items())]


def explain_conflict(runs: Sequence[StageRun]) -> str:
    """Say what it means that stage runs of one key made different outputs.

    Args:
        runs: Two or more of them, newest first.

    Returns:
        A clause without a full stop, with what the records know that differed.

    """
    newest, oldest = runs[0], runs[-1]
    apart = differences(oldest.circumstances, newest.circumstances, after_is="later")
    if apart:
        return f"made with {'; '.join(apart)}: not comparable at L0"
    elsewhere = f"made on {oldest.host}, and on {newest.host}"
    told = "the records know of nothing" if newest.host == oldest.host else elsewhere
    return f"either the stage is not reproducible, or something that no key knows differed ({told})"
