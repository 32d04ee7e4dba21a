"""Answers judged as Ray tasks; what asks a model is asked from the stage's own process."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from posttrain.backends.cluster.tables import Tasks, on_cluster
from posttrain.data.schemas import Problem
from posttrain.learning.rewards import Verdict, verify_all
from posttrain.stage.resources import RayResources

Answers = Sequence[tuple[str, Problem]]

_ANSWERS = 256
"""Answers of one task; fewer than twice as many are judged here, as sending them takes longer."""
_ASKS_A_MODEL = "judge"


@contextmanager
def verifying(resources: RayResources) -> Iterator[Callable[[Answers], list[Verdict]]]:
    """`verify_all` on the cluster of the recipe, with the same verdicts.

    A verifier that asks a model stays here, where its key, its cache and the bound on concurrent
    requests are.
    """
    with on_cluster(resources) as tasks:
        yield lambda answers: _verify(tasks, answers)


def _verify(tasks: Tasks, answers: Answers) -> list[Verdict]:
    there = [i for i, (_, problem) in enumerate(answers) if problem.verifier != _ASKS_A_MODEL]
    if len(there) < 2 * _ANSWERS:
        return verify_all(answers)
    here = [i for i, (_, problem) in enumerate(answers) if problem.verifier == _ASKS_A_MODEL]
    parts = [there[at : at + _ANSWERS] for at in range(0, len(there), _ANSWERS)]
    judged = tasks.each(verify_all, [[answers[i] for i in part] for part in parts])
    verdicts = {
        index: verdict
        for part, found in zip(parts, judged, strict=True)
        for index, verdict in zip(part, found, strict=True)
    }
    verdicts |= zip(here, verify_all([answers[i] for i in here]), strict=True)
    return [verdicts[index] for index in range(len(answers))]
