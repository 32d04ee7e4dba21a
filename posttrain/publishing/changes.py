"""What changed between two states of a recipe: runs, releases, or what branches hold."""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from posttrain.pipeline.execution.lockstate import NAME as LOCK
from posttrain.provenance.git import ask_git, file_at
from posttrain.provenance.ledger import Ledger, Run, StageRun
from posttrain.provenance.ledger.records import DONE
from posttrain.provenance.ledger.transfer import stage_runs_in
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.provenance.lineage.compare import StageComparison, compare_stages
from posttrain.provenance.lineage.names import find_run
from posttrain.publishing.release.registered import find_release
from posttrain.publishing.release.results import Counts, basis_of, counts_of, policies_of
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import counted
from posttrain.views.report.changes import MetricChange, RunChange

WORKSPACE = "."
"""What lies in the workspace now, as `posttrain.lock` says."""
_PAIRED = "pass_at_1"
_ONLY = "--only"
_RUN = re.compile(r"latest(~\d+)?|\d{8}(-\w*)*")
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class RecipeState:
    """The stage runs behind what one side of a comparison holds, by stage."""

    name: str
    """As it was asked for."""
    told: str
    """What it is, in words."""
    stages: Mapping[str, StageRun]
    whole: bool = True
    """Whether a stage that is not in it is none of the recipe: a run may have been of a part."""


def is_run(name: str) -> bool:
    """Whether a name is that of a run: latest, latest~1, or the beginning of an id."""
    return bool(_RUN.fullmatch(name))


def state_of_run(ledger: Ledger, run: Run) -> RecipeState:
    """Read what a run ended with.

    Args:
        ledger: That recorded it.
        run: The run.

    Returns:
        The last attempt at each stage.

    """
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(run.started))
    stages = {each.stage: each for each in ledger.stage_runs(run.id)}
    words = run.command.split()
    part = words[1:3] == ["stage", "run"] or any(word.startswith(_ONLY) for word in words)
    whole = run.status == "succeeded" and not part
    return RecipeState(run.id, f"run {run.id} of {when}", stages, whole)


def state_named(ledger: Ledger, recipe: Path, root: Path, name: str) -> RecipeState:
    """Resolve one side of a comparison.

    Args:
        ledger: For runs.
        recipe: Folder of the recipe.
        root: The project.
        name: `.` for the workspace; a run's id or the beginning of one, latest, latest~N; a
            release (NAME@VERSION, NAME#ENVIRONMENT); a branch, tag or commit of git.

    Returns:
        Its stages.

    Raises:
        UserError: Nothing is called so, or the commit has no `posttrain.lock`.

    """
    if name == WORKSPACE:
        lock = recipe / LOCK
        text = lock.read_text(encoding="utf-8") if lock.is_file() else ""
        if not text:
            raise UserError(
                f"{lock} is not there: posttrain run makes it, git checkout restores it"
            )
        return RecipeState(name, "the workspace", _in_lock(text, where=str(lock)))
    if is_run(name):
        return state_of_run(ledger, find_run(ledger, name))
    is_release = "@" in name or "#" in name
    released = str(find_release(root, name)) if is_release else name
    commit = ask_git(root, "rev-parse", "--verify", "--quiet", f"{released}^{{commit}}")
    if not commit:
        raise UserError(
            f"'{name}' is no run, no release and no branch, tag or commit here; a run is `latest`,"
            " `latest~1` or an id, a release NAME@VERSION, and `.` the workspace"
        )
    held = file_at(recipe, commit, LOCK)
    if held is None:
        raise UserError(
            f"{released} ({commit[:8]}) has no {LOCK} beside the recipe, so what it held is not"
            " known; commit it after a run: git add posttrain.lock"
        )
    told = f"release {released} at {commit[:8]}" if is_release else f"{released} at {commit[:8]}"
    return RecipeState(name, told, _in_lock(held.decode("utf-8"), where=f"{released}:{LOCK}"))


def _in_lock(text: str, *, where: str) -> dict[str, StageRun]:
    return {each.stage: each for each in stage_runs_in(text.splitlines(), where=where)}


def run_before(ledger: Ledger, run: Run) -> Run | None:
    """Find the run of the same recipe that came before and ended well; None without one."""
    earlier = (each for each in ledger.runs() if each.started < run.started)
    return next(
        (each for each in earlier if each.recipe == run.recipe and each.status == "succeeded"), None
    )


def changes_between(before: RecipeState, after: RecipeState, finder: Finder) -> RunChange:
    """Compare two states: what differs first in each stage, and which figures moved.

    Args:
        before: The one.
        after: The other.
        finder: Finds the samples of evaluations, by which problems are paired.

    Returns:
        Causes, figures and what could not be paired.

    """
    remarks = list(_of_parts(before, after))
    compared = [
        each
        for each in compare_stages(before.stages, after.stages)
        if (each.before or before.whole) and (each.after or after.whole)
    ]
    paired: dict[tuple[str, str], MetricChange] = {}
    for each in compared:
        try:
            paired |= {(each.stage, one.name): one for one in _paired(each, finder)}
        except UserError as error:
            remarks.append(f"{each.stage}: not paired by problem: {error}")
    figures = [
        paired.get((each.stage, change.name), change)
        for each in compared
        for change in _figures(each)
    ]
    return RunChange(
        before=before.told,
        after=after.told,
        causes=[(each.stage, _cause(each)) for each in compared if not each.same],
        metrics=sorted(figures, key=lambda each: each.paired is None),
        equal=sum(each.same for each in compared),
        remarks=remarks,
    )


def _of_parts(before: RecipeState, after: RecipeState) -> Iterator[str]:
    """Say which stages only one side ran: of these there is nothing to compare."""
    for part, other in ((before, after), (after, before)):
        missing = [name for name in other.stages if name not in part.stages]
        if missing and not part.whole:
            names = ", ".join(missing)
            yield f"{part.told} did not run {counted(len(missing), 'stage')}: {names}"


def _cause(each: StageComparison) -> str:
    if each.before is None:
        return "new stage"
    if each.after is None:
        return "no longer there"
    if each.after.status not in DONE:
        return f"{each.after.status}: {each.after.error}"
    return each.cause or "same key, other outputs"


def _figures(each: StageComparison) -> Iterator[MetricChange]:
    for change in each.metrics:
        values = [
            value if isinstance(value, float | int) else None
            for value in (change.before, change.after)
        ]
        yield MetricChange(each.stage, _short(each.stage, change.name), values[0], values[1])


def _short(stage: str, metric: str) -> str:
    """A metric without the name of its stage in front."""
    return metric.removeprefix(f"{stage}/")


def _paired(each: StageComparison, finder: Finder) -> Iterator[MetricChange]:
    """pass@1 of each policy that both evaluations have, problem by problem.

    Raises:
        UserError: What they measured differs, or samples of one are not here.

    """
    before, after = each.before, each.after
    if before is None or after is None or before.outputs == after.outputs:
        return
    names = [name for name in policies_of(after) if name in policies_of(before)]
    if not names or not all(_has_samples(run) for run in (before, after)):
        return
    ours, theirs = basis_of(after), basis_of(before)
    if differing := [name for name in ("problems", "params") if ours[name] != theirs[name]]:
        raise UserError(f"the two were evaluated with other {' and '.join(differing)}")
    for name in names:
        pair = [counts_of(run, name, finder) for run in (before, after)]
        if pair[0].keys() == pair[1].keys() and pair[0] != pair[1]:
            yield _difference(each.stage, f"{name}/{_PAIRED}", *pair)


def _has_samples(run: StageRun) -> bool:
    return {"report", "completions"} <= {each.role for each in run.outputs}


def _share(counts: Counts) -> float:
    right, taken = counts
    return right / taken


def _difference(
    stage: str, name: str, before: Mapping[str, Counts], after: Mapping[str, Counts]
) -> MetricChange:
    """Means over problems, and the interval of the mean difference."""
    import numpy as np

    from posttrain.publishing.release.statistics import interval

    problems = sorted(after)
    shares = [np.array([_share(counts[each]) for each in problems]) for counts in (before, after)]
    low, high = interval(shares[1] - shares[0], _CONFIDENCE, lowest=-1.0, highest=1.0)
    first, second = (float(each.mean()) for each in shares)
    return MetricChange(stage, name, first, second, low, high, len(problems))
