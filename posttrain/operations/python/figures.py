"""`posttrain.metrics` and `posttrain.compare`: what runs measured, and how two differ."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from posttrain.operations.python.project import AnyPath, open_project
from posttrain.operations.python.shown import Displayed, Grid
from posttrain.provenance.ledger import Ledger, StageRun
from posttrain.provenance.lineage.compare import StageComparison, compare_runs
from posttrain.provenance.lineage.names import find_run

if TYPE_CHECKING:
    import polars as pl

    from posttrain.operations.python.project import OpenProject
    from posttrain.views.report.changes import MetricChange

ABSENT, NONE = "not in this run", "none"


@dataclass(frozen=True, repr=False)
class Comparison(Displayed):
    """Two runs, stage by stage.

    Attributes:
        before: Id of the one run.
        after: Id of the other.
        stages: Per stage the first cause, and the artifacts and metrics that changed.
        paired: pass@1 of each policy that both runs evaluated on the same problems and that
            differs: before, after, and the 95% interval of the mean difference over problems.
        remarks: Which evaluations could not be paired, and why.

    """

    before: str
    after: str
    stages: tuple[StageComparison, ...]
    paired: "tuple[MetricChange, ...]" = ()
    remarks: tuple[str, ...] = ()

    @property
    def differing(self) -> tuple[StageComparison, ...]:
        """Stages of which something differs."""
        return tuple(each for each in self.stages if not each.same)

    @property
    def closing(self) -> str:
        """How many stages are equal, in words."""
        equal = len(self.stages) - len(self.differing)
        return f"{equal} of {len(self.stages)} stages are equal"

    @property
    def headings(self) -> tuple[str, str, str, str]:
        """Of the columns of `rows`."""
        return "stage", "what", f"run {self.before}", f"run {self.after}"

    def rows(self, *, everything: bool = False) -> list[tuple[str, str, str, str]]:
        """Per stage its outcome, the first cause, and every artifact and number that changed.

        Args:
            everything: Stages that are equal, too.

        Returns:
            Stage (on its first row), what, before, after.

        """
        shown = self.stages if everything else self.differing
        return [row for each in shown for row in _rows(each)]

    def grid(self) -> Grid:
        """See `Displayed`."""
        paired = [f"{each.stage}: {each.name} {each.moved}" for each in self.paired]
        return Grid("", self.headings, self.rows(), (*paired, *self.remarks, self.closing))


def metrics(*runs: str, project: AnyPath = ".") -> "pl.DataFrame":
    """Read what the stages of some runs measured at their end.

    Args:
        runs: Ids, starts of ids, `latest` or `latest~N`; by default the latest.
        project: A folder of the project.

    Returns:
        A row for each metric: run, recipe, stage, status, metric, value. A reused stage has the
        figures of its execution.

    Raises:
        UserError: The ledger knows no such run.

    """
    import polars as pl

    schema = dict.fromkeys(("run", "recipe", "stage", "status", "metric"), pl.String)
    with open_project(project) as opened:
        found = [find_run(opened.ledger, name) for name in runs or ("latest",)]
        rows = [
            (run.id, run.recipe, each.stage, each.status, name, float(value))
            for run in found
            for each in opened.ledger.stage_runs(run.id)
            for name, value in each.metrics.items()
        ]
    return pl.DataFrame(rows, schema={**schema, "value": pl.Float64}, orient="row")


def compare(before: str, after: str = "latest", *, project: AnyPath = ".") -> Comparison:
    """Compare two runs: causes, artifacts and numbers by stage, and pass@1 by problem.

    Args:
        before: A run: an id, the start of one, `latest` or `latest~N`.
        after: The other.
        project: A folder of the project.

    Returns:
        What differs; a notebook shows it as a table.

    Raises:
        UserError: The ledger knows no such run.

    """
    with open_project(project) as opened:
        return _with_pairs(opened, compare_named_runs(opened.ledger, before, after))


def compare_named_runs(ledger: Ledger, before: str, after: str) -> Comparison:
    """Compare two runs of a ledger.

    Args:
        ledger: That recorded both.
        before: What a user calls the one.
        after: And the other.

    Returns:
        What differs.

    """
    old, new = find_run(ledger, before), find_run(ledger, after)
    return Comparison(old.id, new.id, tuple(compare_runs(ledger, old, new)))


def _with_pairs(opened: "OpenProject", found: Comparison) -> Comparison:
    from posttrain.provenance.lineage.artifacts import Finder
    from posttrain.publishing.changes import changes_between, state_of_run

    runs = [find_run(opened.ledger, name) for name in (found.before, found.after)]
    states = [state_of_run(opened.ledger, run) for run in runs]
    change = changes_between(states[0], states[1], Finder(opened.root))
    paired = tuple(each for each in change.metrics if each.paired is not None)
    return replace(found, paired=paired, remarks=tuple(change.remarks))


def _rows(each: StageComparison) -> Iterator[tuple[str, str, str, str]]:
    yield each.stage, "status", _status(each.before), _status(each.after)
    if each.cause:
        yield "", "cause", each.cause, ""
    for change in (*each.outputs, *each.metrics):
        yield "", change.name, _value(change.before), _value(change.after)


def _status(run: StageRun | None) -> str:
    return ABSENT if run is None else f"{run.status}, {run.seconds:.1f} s"


def _value(value: float | str | None) -> str:
    if value is None:
        return NONE
    return f"{value:.6g}" if isinstance(value, float) else str(value)
