"""What a run found out, in a few figures with their intervals."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from posttrain.cli.page.project import Project
from posttrain.cli.page.windows import Memory
from posttrain.provenance.ledger import ArtifactRecord, StageRun
from posttrain.stage.errors import UserError
from posttrain.views.report.evaluation import Evaluation, Share, evaluations
from posttrain.views.report.facts import StageFacts
from posttrain.views.report.headline import headlines

_READ_ERRORS = (KeyError, TypeError, ValueError, IndexError, OSError, UserError)
_MOST_KEPT = 512
_OF_POLICY = re.compile(r"(?P<stage>.+)/(?P<policy>[^/]+)/pass_at_(?P<k>\d+)")

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
    # Stages that were taken over found out what they had found out before.
    kept = (reports, tuple(each.key for each in stage_runs))
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


def evaluated_share(project: Project, stage_runs: Sequence[StageRun], metric: str) -> Share | None:
    """Look up the interval of a metric of an evaluation.

    Args:
        project: Where reports lie.
        stage_runs: Of one run.
        metric: Such as ``evaluate/rl/pass_at_1``.

    Returns:
        The share with its interval; None where no evaluation reports one by that name.

    """
    parts = _OF_POLICY.fullmatch(metric)
    if parts is None:
        return None
    reports = tuple(each for each in stage_runs if each.stage == parts["stage"])
    shares = (
        share
        for evaluation in evaluations_of(project, reports)
        for policy in evaluation.policies
        if policy.name == parts["policy"]
        for share in policy.pass_at
        if share.k == int(parts["k"])
    )
    return next(shares, None)


def _said(project: Project, stage_runs: Sequence[StageRun]) -> list[str]:
    told = [
        f"{policy.name} pass@{policy.pass_at[0].k} {policy.pass_at[0]}"
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
