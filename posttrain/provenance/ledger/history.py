"""What became of a stage over its runs: the last outputs, the last executions, how long it took."""

from collections.abc import Sequence

from posttrain.provenance.ledger.reading import IS_DONE, StageRunReader
from posttrain.provenance.ledger.records import StageRun
from posttrain.provenance.ledger.store import Store, query_in

_OF_RECIPE = "run_id IN (SELECT id FROM runs WHERE recipe=:recipe)"


class StageHistory:
    """Questions about stages by name, whatever their keys."""

    def __init__(self, store: Store, reader: StageRunReader) -> None:
        self._store = store
        self._reader = reader

    def latest(self, stage: str, recipe: str | None = None) -> StageRun | None:
        """Find the stage run that last put outputs of a stage in place, reused ones included.

        Args:
            stage: Name of the stage.
            recipe: Name of the recipe whose runs alone count; None for any.

        Returns:
            The stage run; None where there is none.

        """
        condition = f"stage=:stage AND {IS_DONE}"
        if recipe is not None:
            condition += f" AND {_OF_RECIPE}"
        found = self._reader.where(condition, {"stage": stage, "recipe": recipe}, limit=1)
        return found[0] if found else None

    def executions(self, stage: str, recipe: str, *, limit: int) -> list[StageRun]:
        """The stage runs that really executed `stage`, failed ones included, newest first."""
        condition = f"stage=:stage AND status IN ('succeeded','failed') AND {_OF_RECIPE}"
        return self._reader.where(condition, {"stage": stage, "recipe": recipe}, limit=limit)

    def durations(self, stages: Sequence[str], recipe: str | None = None) -> dict[str, float]:
        """Look up how long the last execution of each stage took.

        Args:
            stages: Names of stages.
            recipe: Count its own executions alone: another one's stage may be of any size.

        Returns:
            Seconds by stage; one that was never executed is absent.

        """
        own = "" if recipe is None else " AND r.recipe=:recipe"
        sql = (
            "SELECT stage,ended-started AS seconds FROM stage_runs WHERE num IN (SELECT MAX(s.num)"
            " FROM stage_runs s LEFT JOIN runs r ON r.id=s.run_id WHERE s.stage IN ({values})"
            f" AND s.status='succeeded'{own} GROUP BY s.stage)"
        )
        fixed = {} if recipe is None else {"recipe": recipe}
        rows = query_in(self._store, sql, list(stages), fixed=fixed)
        # A clock that was set back during a stage must not make it take negative time.
        return {row.stage: max(0.0, row.seconds) for row in rows}
