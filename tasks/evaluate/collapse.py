"""Signs that a policy lost what its parent had: it guesses, or no longer ends its answers."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.score import final_answer
from posttrain.learning.rewards.verifiers.base import ByPlay
from posttrain.learning.rewards.verify import verifier_of
from posttrain.learning.rollouts.strategies.sample import SampleStrategy
from tasks.evaluate.estimates import mean_of_problems
from tasks.evaluate.tally import Tally

FEW = 0.5
"""Part of the reference's and the parent's number of answers below which a policy guesses."""

SHORT = 0.5
"""Part of the parent's mean length below which answers have collapsed."""

CUT = 0.2
"""Share of samples that met the token limit from which it is said."""

_LEAST = 20
"""Answers from which something can be said of how many different ones there are."""


def effective_number(answers: Sequence[str]) -> float:
    """Return how many equally frequent answers would be as diverse: the exponential of the entropy.

    Source: Hill number of order 1 (Hill, "Diversity and Evenness", 1973, equation 3).
    """
    counts = Counter(answers).values()
    total = sum(counts)
    return math.exp(-sum(count / total * math.log(count / total) for count in counts))


def warnings_of(tally: Tally, parent: Tally | None) -> tuple[str, ...]:
    """Say in sentences what somebody should see before the figures.

    Args:
        tally: Of the policy.
        parent: Of the policy that it was trained from, on the same problems.

    Returns:
        None where nothing is wrong.

    """
    found = list(_guesses(tally, parent))
    if parent is not None:
        found += _losses(tally, parent)
    samples = [made.sample for group in tally.samples for made in group]
    turns = sum(each.played is not None and each.played.end == "turns" for each in samples)
    met = {"max_tokens": tally.truncation_rate() - turns / len(samples)}
    met["most_turns"] = turns / len(samples)
    for limit, share in met.items():
        if share > CUT:
            found.append(f"{tally.name}: {share:.0%} of its samples met {limit} before they ended")
    return tuple(found)


def _guesses(tally: Tally, parent: Tally | None) -> Iterator[str]:
    # Only of problems that it answers at all: who is silent on most has few answers, not few kinds.
    answered = {problem.id for problem, given in _given(tally) if given}
    stated = _by_source(tally, answered)
    before = _by_source(parent, answered) if parent else {}
    references = _references(tally)
    for source, answers in stated.items():
        others = [references[source], *([before[source]] if before.get(source) else [])]
        usual = min(map(effective_number, others))
        if len(answers) >= _LEAST and effective_number(answers) < FEW * usual:
            (most, count), *_ = Counter(answers).most_common(1)
            yield (
                f"{tally.name} seems to guess at {source}: {count / len(answers):.0%} of its"
                f" answers are {most!r}; they vary as {effective_number(answers):.1f} equally"
                f" frequent ones would, and {usual:.1f} would be usual; RL guesses less with"
                " algorithm maxrl and draw.most_of_one_answer 0.2"
            )


def _losses(tally: Tally, parent: Tally) -> Iterator[str]:
    k = tally.num_samples
    strategy = SampleStrategy()
    now_P, before_P = (strategy.solved(each.drawn(), k) for each in (tally, parent))
    difference = mean_of_problems(now_P - before_P, lowest=-1.0)
    if k > 1 and difference.high < 0:
        yield (
            f"{tally.name} solves fewer problems in {k} tries than {parent.name}:"
            f" {float(now_P.mean()):.1%} against {float(before_P.mean()):.1%}"
        )
    if tally.mean_length() < SHORT * parent.mean_length():
        yield (
            f"{tally.name} writes {tally.mean_length():.0f} tokens, {parent.name}"
            f" {parent.mean_length():.0f}"
        )


def _given(tally: Tally) -> Iterator[tuple[Problem, list[str]]]:
    """Each problem with the answers that are stated to it.

    One that an episode decides has no answer that could be stated: what is said there are moves.
    """
    for problem, answers in zip(tally.problems, tally.drawn().answers, strict=True):
        if not isinstance(verifier_of(problem), ByPlay):
            yield problem, [each for each in answers if each is not None]


def _by_source(tally: Tally, answered: Collection[str]) -> dict[str, list[str]]:
    """The answers that are stated to the problems of these ids, by source."""
    found: dict[str, list[str]] = {}
    for problem, given in _given(tally):
        if problem.id in answered and given:
            found.setdefault(problem.source, []).extend(given)
    return found


def _references(tally: Tally) -> dict[str, list[str]]:
    """What would have been right, once for each answer that is stated, by source."""
    found: dict[str, list[str]] = {}
    for problem, given in _given(tally):
        if given:
            # A problem may state a whole solution, with its answer behind the marker.
            right = final_answer(problem.answer) or problem.answer
            found.setdefault(problem.source, []).extend([right] * len(given))
    return found
