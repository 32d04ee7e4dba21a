"""`report.html`: one file with everything in it, for people, after a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from posttrain.provenance.lineage.render.page import drawer_scripts
from posttrain.stage.errors import UserError
from posttrain.stage.files import replacing
from posttrain.views.charts import chart_scripts, chart_style
from posttrain.views.report import claims, dag, details, episodes, evaluation, headline, training
from posttrain.views.report.changes import RunChange
from posttrain.views.report.claims import HEADING, ClaimRow
from posttrain.views.report.facts import StageFacts
from posttrain.views.report.templates import template

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class ReportExtras:
    """What only the caller of the report knows, gathered when the page comes to it."""

    claimed: Callable[[], list[ClaimRow]] = list
    """The claims of the methods that were used."""
    glance: Callable[[], Mapping[str, str]] = dict
    """What the run was, label to text."""
    before: Callable[[], list[RunChange]] = list
    """The comparison with the run before, if there was one."""


def write_report(
    path: Path,
    *,
    recipe_name: str,
    stages: Sequence[StageFacts],
    artifacts: Mapping[str, Path],
    facts: Mapping[str, str],
    told: ReportExtras | None = None,
) -> None:
    """Write the page from whatever artifacts there are; what is missing is left out.

    Args:
        path: Where it goes.
        recipe_name: Its title.
        stages: Of the run.
        artifacts: `stage.output` -> where it lies.
        facts: The provenance, label to text.
        told: What artifacts do not say; None leaves it out.

    """
    told = told or ReportExtras()
    problems: list[str] = []

    def attempt(section: str, build: Callable[[], list[_Result]]) -> list[_Result]:
        """A section that cannot be read is named on the page, and costs only itself."""
        try:
            return build()
        except (KeyError, TypeError, ValueError, IndexError, OSError, UserError) as error:
            problems.append(f"{section}: {type(error).__name__}: {error}")
            return []

    page = template("page.html").render(
        recipe=recipe_name,
        evaluated=attempt("evaluation", lambda: _evaluated(stages, artifacts)),
        headlines=attempt("held-out figures", lambda: headline.headlines(stages, artifacts)),
        verdicts=attempt("verdict", lambda: claims.verdicts(stages, artifacts)),
        trainings=attempt("training", lambda: training.trainings(stages, artifacts)),
        played=attempt("episodes", lambda: episodes.played_trainings(stages, artifacts)),
        rewards=attempt("reward model", lambda: details.reward_models(stages, artifacts)),
        curricula=attempt("curriculum", lambda: details.curricula(stages, artifacts)),
        dropped=attempt("dropped rows", lambda: details.dropped_rows(stages, artifacts)),
        claimed=attempt("claims", told.claimed),
        claim_heading=HEADING,
        glance=attempt("glance", lambda: [*told.glance().items()]),
        before=attempt("the run before", told.before),
        chart_style=chart_style(),
        chart_scripts=chart_scripts,
        drawer_scripts=drawer_scripts,
        pipeline=dag.draw_dag(stages),
        stages=stages,
        facts=facts,
        problems=problems,
    )
    with replacing(path) as partial:
        partial.write_text(page, encoding="utf-8")


def _evaluated(
    stages: Sequence[StageFacts], artifacts: Mapping[str, Path]
) -> list[Mapping[str, Any]]:
    """Every evaluation, ready to be laid out."""
    return [
        {
            "report": report,
            "verdict": evaluation.verdict(report),
            "figures": evaluation.charts(report),
            "exhibits": [each | {"kind": _kind(each)} for each in report.exhibits],
        }
        for report in evaluation.evaluations(stages, artifacts)
    ]


def _kind(exhibit: Mapping[str, Any]) -> str:
    """How the last two policies compare on a problem."""
    right = [each["score"] >= 1.0 for each in exhibit["completions"]]
    if len(right) < 2 or right[-1] == right[-2]:
        return "same"
    return "gained" if right[-1] else "lost"
