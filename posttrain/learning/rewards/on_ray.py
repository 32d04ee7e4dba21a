"""Answers verified as Ray tasks; what needs more than code stays in the stage's process."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from posttrain.backends.cluster.tables import Tasks, on_cluster
from posttrain.learning.rewards.score import Score
from posttrain.learning.rewards.verifiers.base import Verifier
from posttrain.learning.rewards.verify import Answer, apply_verifier, by_verifier
from posttrain.stage.resources import RayResources

_ANSWERS = 256
"""Answers of one task; fewer than twice as many are scored here, as sending them takes longer."""


@contextmanager
def verifying_on_ray(
    resources: RayResources,
) -> Iterator[Callable[[Sequence[Answer]], list[Score]]]:
    """Open `verify_all` on the cluster of the recipe, with the same scores."""
    with on_cluster(resources) as tasks:
        yield lambda answers: _verify(tasks, answers)


def _verify(tasks: Tasks, answers: Sequence[Answer]) -> list[Score]:
    found = by_verifier(answers)
    there = sum(len(places) for verifier, places in found if _may_leave(verifier))
    scores: dict[int, Score] = {}
    sent: list[tuple[Verifier, list[int]]] = []
    for verifier, places in found:
        if there >= 2 * _ANSWERS and _may_leave(verifier):
            cuts = range(0, len(places), _ANSWERS)
            sent += [(verifier, places[at : at + _ANSWERS]) for at in cuts]
        else:
            chosen = [answers[place] for place in places]
            scores |= zip(places, apply_verifier(verifier, chosen), strict=True)
    # The parts themselves are sent: a worker knows nothing of the recipe's plug-ins.
    jobs = [(verifier, [answers[place] for place in places]) for verifier, places in sent]
    found_there = tasks.each(_score, jobs) if jobs else []
    for (_, places), part in zip(sent, found_there, strict=True):
        scores |= zip(places, part, strict=True)
    return [scores[place] for place in range(len(answers))]


def _may_leave(verifier: Verifier) -> bool:
    return not verifier.NEEDS


def _score(job: tuple[Verifier, list[Answer]]) -> list[Score]:
    return apply_verifier(*job)
