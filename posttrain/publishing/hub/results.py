"""Evaluations as the hub reads them: `model-index` on the card, and `.eval_results`."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from posttrain.publishing.hub.origins import HubData
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of_json

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

RESULTS = ".eval_results"
"""Folder of results in a repository of the hub; others add theirs by pull request."""
_FIGURES = ("value", "low", "high")
_DIGITS = 6
Estimates = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class EvaluatedOn:
    """An evaluation, and the conditions that its figures hold under."""

    problems: str
    """Digest of the table of problems."""
    settings: Mapping[str, Any]
    """Samples per problem, temperature, longest answer."""
    ended: float
    """UTC epoch seconds."""
    heldout: Sequence[HubData] = ()
    """The data sets of the hub that its problems are from."""

    @property
    def date(self) -> str:
        """The day, by ISO 8601, in UTC."""
        return time.strftime("%Y-%m-%d", time.gmtime(self.ended))


def model_index(estimates: Estimates, measured: EvaluatedOn) -> "list[EvalResult]":
    """Write pass@k with its interval, counts and date as results of a model card.

    Args:
        estimates: Headline figures by name.
        measured: The evaluation.

    Returns:
        One for each figure. Own problems are no data set of the hub, and are named by their digest.

    """
    from huggingface_hub import EvalResult

    only = measured.heldout[0] if len(measured.heldout) == 1 else None
    data = only.name if only else f"held-out-{measured.problems[:12]}"
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=data,
            dataset_name=data if only else "held-out problems of the recipe",
            dataset_config=only.subset if only else None,
            dataset_split=only.split if only else None,
            dataset_revision=only.revision if only else None,
            dataset_args={"sha256": measured.problems},
            metric_type=_spelled(name),
            metric_name=f"{_spelled(name)}, with its 95% interval over problems",
            metric_value=round(each["value"], _DIGITS),
            metric_args={
                "low": round(each["low"], _DIGITS),
                "high": round(each["high"], _DIGITS),
                "problems": int(each["problems"]),
                "seeds": int(each["seeds"]),
                "date": measured.date,
                **measured.settings,
            },
        )
        for name, each in in_order_of_k(estimates)
    ]


def benchmark_file(
    dataset: str, task: str, estimates: Estimates, measured: EvaluatedOn
) -> dict[str, bytes]:
    """Write pass@1 as a result on a benchmark of the hub.

    Args:
        dataset: The benchmark's name there.
        task: Its task, by the id in its eval.yaml.
        estimates: Headline figures by name.
        measured: The evaluation.

    Returns:
        The file by its name in the repository.

    Raises:
        UserError: The held-out problems are not all from this data set.

    """
    import yaml
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    if [each.name for each in measured.heldout] != [dataset]:
        found = ", ".join(each.name for each in measured.heldout) or "none"
        raise UserError(
            f"release.benchmark: the held-out problems must come from {dataset} alone, as a source"
            f" of kind huggingface with use: heldout; the data sets that they come from: {found}"
        )
    (source,) = measured.heldout
    best = estimates["pass_at_1"]
    settings = ", ".join(f"{name} {value}" for name, value in measured.settings.items())
    entry = EvalResultEntry(
        dataset_id=dataset,
        task_id=task,
        dataset_revision=source.revision,
        value=round(best["value"], _DIGITS),
        date=measured.date,
        notes=(
            f"pass@1, 95% interval over problems {best['low']:.4f} to {best['high']:.4f};"
            f" {best['problems']:.0f} problems of split {source.split}, {best['seeds']:.0f} seeds;"
            f" {settings}"
        ),
    )
    name = f"{RESULTS}/posttrain-{sha256_of_json([dataset, task])[:12]}.yaml"
    return {name: yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False).encode()}


def index_findings(card: str, estimates: Estimates) -> Iterator[str]:
    """Compare the figures in a card's head with those that were measured.

    Args:
        card: Its text; older cards have none in their head.
        estimates: Headline figures by name.

    Yields:
        What differs.

    """
    head = card.removeprefix("---\n").partition("\n---\n")[0].splitlines()
    if "model-index:" not in head:
        return
    stated = [line.split() for line in head]
    for name in _FIGURES:
        shown = [words[-1] for words in stated if len(words) > 1 and words[-2] == f"{name}:"]
        wanted = [round(each[name], _DIGITS) for _, each in in_order_of_k(estimates)]
        if [_figure(each) for each in shown] != wanted:
            yield f"the model-index in its head does not say what metrics.json says ({name})"


def _figure(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def in_order_of_k(estimates: Estimates) -> list[tuple[str, Mapping[str, float]]]:
    """Sort figures by k: 2 before 16, in whatever order JSON gave them back."""
    return sorted(estimates.items(), key=lambda item: (len(item[0]), item[0]))


def _spelled(metric: str) -> str:
    return metric.replace("pass_at_", "pass@")
