"""`report.html`: one file with everything in it, for people, after a run."""

import importlib.resources
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from posttrain.stage.formatting import bytesize, number
from posttrain.views.report import dag, details, evaluation, training
from posttrain.views.report.facts import StageFacts

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class StageRow:
    """One line of the pipeline's table."""

    name: str
    status: str
    state: str
    key: str
    reads: str
    outputs: list[tuple[str, str, str]]


@dataclass(frozen=True)
class Evaluated:
    """One evaluation, ready to be laid out."""

    stage: str
    verdict: str
    report: Mapping[str, Any]
    rows: list[evaluation.PolicyRow]
    figures: list[Any]
    exhibits: list["ProblemExample"]


@dataclass(frozen=True)
class ProblemExample:
    """One problem with every policy's first completion; `kind` is how its policies compare."""

    source: str
    difficulty: object
    prompt: str
    answer: str
    kind: str
    columns: list[Mapping[str, Any]]


def write_report(
    path: Path,
    *,
    recipe_name: str,
    stages: Sequence[StageFacts],
    artifacts: Mapping[str, Path],
    facts: Mapping[str, str],
) -> None:
    """Write the page from whatever artifacts there are; what is missing is left out.

    `artifacts` maps `stage.output` to where it lies; `facts` is the provenance, label to text.
    """
    problems: list[str] = []

    def attempt(section: str, build: Callable[[], list[_Result]]) -> list[_Result]:
        """A section that cannot be read is named on the page, and costs only itself."""
        try:
            return build()
        except (KeyError, TypeError, ValueError, IndexError, OSError) as error:
            problems.append(f"{section}: {type(error).__name__}: {error}")
            return []

    page = _template().render(
        recipe=recipe_name,
        evaluated=attempt("evaluation", lambda: _evaluated(stages, artifacts)),
        trainings=attempt("training", lambda: training.trainings(stages, artifacts)),
        rewards=attempt("reward model", lambda: details.reward_models(stages, artifacts)),
        curricula=attempt("curriculum", lambda: details.curricula(stages, artifacts)),
        dropped=attempt("dropped rows", lambda: details.dropped_rows(stages, artifacts)),
        pipeline=dag.draw(stages),
        rows=[_stage_row(stage) for stage in stages],
        facts=facts,
        problems=problems,
        style=_read_asset("page.css"),
        script=_read_asset("page.js"),
    )
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(page, encoding="utf-8")
    temporary.replace(path)


def _evaluated(stages: Sequence[StageFacts], artifacts: Mapping[str, Path]) -> list[Evaluated]:
    return [
        Evaluated(
            stage=stage,
            verdict=evaluation.verdict(report),
            report=report,
            rows=evaluation.policy_rows(report),
            figures=evaluation.charts(report),
            exhibits=[_exhibit(item) for item in report.get("exhibits", [])],
        )
        for stage, report in evaluation.evaluations(stages, artifacts)
    ]


def _exhibit(item: Mapping[str, Any]) -> ProblemExample:
    columns = list(item["completions"])
    right = [column["score"] >= 1.0 for column in columns]
    kind = "same"
    if len(right) > 1 and right[-1] != right[-2]:
        kind = "gained" if right[-1] else "lost"
    return ProblemExample(
        source=item["source"],
        difficulty=item["difficulty"],
        prompt=item["prompt"],
        answer=item["answer"],
        kind=kind,
        columns=columns,
    )


def _stage_row(stage: StageFacts) -> StageRow:
    record = stage.record
    outputs = []
    for output in record.outputs:
        amount = f"{number(output.rows)} rows" if output.rows is not None else bytesize(output.size)
        outputs.append((output.role, amount, output.digest[:12]))
    reads = dict.fromkeys(item.producer or item.path for item in record.inputs)
    return StageRow(
        name=record.stage,
        status=record.status,
        state=dag.state(stage),
        key=record.key[:12],
        reads=", ".join(reads),
        outputs=outputs,
    )


def _template() -> Any:
    """The page's template, escaping everything that is not marked as markup."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["number"] = number
    return environment.from_string(_read_asset("page.html"))


def _read_asset(name: str) -> str:
    return (
        importlib.resources.files("posttrain.views.report")
        .joinpath(name)
        .read_text(encoding="utf-8")
    )
