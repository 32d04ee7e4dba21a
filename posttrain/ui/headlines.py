"""What a run found out, in a few figures with their intervals."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from posttrain.provenance.ledger import ArtifactRecord, StageRun
from posttrain.stage.errors import UserError
from posttrain.ui.project import Project
from posttrain.ui.windows import Memory
from posttrain.views.report.evaluation import Evaluation, evaluations
from posttrain.views.report.facts import StageFacts
from posttrain.views.report.headline import headlines

_READ_ERRORS = (KeyError, TypeError, ValueError, IndexError, OSError, UserError)
_MOST_KEPT = 512

_known: Memory[list[str]] = Memory(_MOST_KEPT)


def headlines_of(project: Project, stage_runs: Sequence[StageRun]) -> list[str]:
    """Say what a run found out.

    Args:
        project: Where its reports lie.
        stage_runs: Of the run, in order.

    Returns:
        What each policy solves of the held-out problems, with its interval; of a run without an
        evaluation what its stages measured on held-out rows; nothing where no report is there.

    """
    reports = tuple(output.digest for each in stage_runs for output in _reports(each))
    kept = (reports, tuple(each.id for each in stage_runs))
    return _known.get(kept, lambda: _said(project, stage_runs))


def evaluations_of(project: Project, stage_runs: Sequence[StageRun]) -> list[Evaluation]:
    """Read the evaluations of a run.

    Args:
        project: Where its reports lie.
        stage_runs: Of the run.

    Returns:
        One for each stage that compared policies; none that cannot be read.

    """
    try:
        return evaluations(*_facts_of(project, stage_runs))
    except _READ_ERRORS:
        return []


def _said(project: Project, stage_runs: Sequence[StageRun]) -> list[str]:
    told = [
        f"{policy.name} {policy.pass_at[0]}"
        for evaluation in evaluations_of(project, stage_runs)
        for policy in evaluation.policies
    ]
    try:
        return told or headlines(*_facts_of(project, stage_runs))
    except _READ_ERRORS:
        return []


def _reports(stage_run: StageRun) -> list[ArtifactRecord]:
    return [each for each in stage_run.outputs if each.type == "report"]


def _facts_of(
    project: Project, stage_runs: Sequence[StageRun]
) -> tuple[list[StageFacts], Mapping[str, Path]]:
    facts = [StageFacts(each, each.seconds) for each in stage_runs]
    places = {
        f"{each.stage}.{output.role}": project.file(output)
        for each in stage_runs
        for output in _reports(each)
    }
    return facts, {name: place for name, place in places.items() if place is not None}
