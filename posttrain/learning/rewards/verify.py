"""Scoring answers by what their problems name: a verifier with the problem's own parameters."""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from posttrain.learning.rewards.score import Score
from posttrain.learning.rewards.verifiers.base import Verifier
from posttrain.learning.rewards.verifiers.registry import VERIFIERS
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

Answer = tuple[str, "Problem"]
"""What a model wrote, and the problem that it was asked."""

_CACHE_BYTES = 256 << 20
_ENTRY_BYTES = 400
"""Bytes that an entry of the cache takes beside its text, about."""


def verifier_of(problem: "Problem") -> Verifier:
    """Return the verifier that a problem names, or its source, with the problem's parameters.

    Args:
        problem: Its `verifier` or its `scored_by` names a kind; its `metadata` may hold parameters
            under that kind, which go before those of the source.

    Raises:
        UserError: There is no such kind, or its parameters are not valid.

    """
    said = json.loads(problem.scored_by) if problem.scored_by and not problem.verifier else {}
    kind = said.pop("kind", problem.verifier)
    where = f"problem {problem.id} of '{problem.source}'"
    if not kind:
        raise UserError(f"{where} names no verifier, and its source's was not read with it")
    try:
        part = VERIFIERS.find(kind)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    if not part.has_parameters():
        return part.model_validate({})
    given = {**said, **json.loads(problem.metadata).get(kind, {})}
    return part.parse(given, where=f"{where}: {part.__name__}")


def metadata_for(verifier: Verifier) -> str:
    """Return the metadata of a problem that this verifier scores: its parameters as JSON."""
    parameters = verifier.parameters()
    return json.dumps({verifier.kind: parameters} if parameters else {})


def stated_answers(texts: Sequence[str], problem: "Problem") -> list[str | None]:
    """Return what answers to one problem state, as its verifier reads them.

    Args:
        texts: The answers.
        problem: What they answer.

    Returns:
        What each states; None where it states nothing.

    """
    verifier = verifier_of(problem)
    return [verifier.stated(text) for text in texts]


def places_of_answers(problems: Iterable["Problem"]) -> str:
    """Say in words where the verifiers of these problems look for an answer, for notes and errors.

    >>> from posttrain.data.schemas import Problem
    >>> places_of_answers([Problem("sums", "2 + 3 =", "5", 1, "numeric")])
    "on a line that starts with '####' (verifier numeric)"

    Args:
        problems: Some problems.

    Returns:
        The places, each once; empty where the verifiers read the whole text.

    """
    written = {(each.verifier, each.metadata, each.scored_by): each for each in problems}
    found = [(verifier.place(), verifier.kind) for verifier in map(verifier_of, written.values())]
    named = [f"{place} (verifier {kind})" for place, kind in found if place]
    return ", or ".join(dict.fromkeys(named))


def verify(text: str, problem: "Problem") -> Score:
    """Score one answer by the verifier that its problem names.

    Args:
        text: The answer as it was drawn.
        problem: With reference answer and verifier.

    Returns:
        Number and reason.

    """
    return verify_all([(text, problem)])[0]


def verify_all(answers: Sequence[Answer]) -> list[Score]:
    """Score every answer by the verifier of its problem; equal verifiers see theirs all at once."""
    scores: dict[int, Score] = {}
    for verifier, places in by_verifier(answers):
        chosen = [answers[place] for place in places]
        scores |= zip(places, apply_verifier(verifier, chosen), strict=True)
    return [scores[place] for place in range(len(answers))]


def by_verifier(answers: Sequence[Answer]) -> list[tuple[Verifier, list[int]]]:
    """Return each verifier that the answers need, with the places of its answers."""
    found: dict[str, tuple[Verifier, list[int]]] = {}
    known: dict[tuple[str, str, str], str] = {}
    for place, (_, problem) in enumerate(answers):
        written = (problem.verifier, problem.metadata, problem.scored_by)
        if written not in known:
            verifier = verifier_of(problem)
            known[written] = verifier.model_dump_json()
            found.setdefault(known[written], (verifier, []))
        found[known[written]][1].append(place)
    return list(found.values())


def apply_verifier(verifier: Verifier, answers: Sequence[Answer]) -> list[Score]:
    """Score answers by one verifier.

    Args:
        verifier: The part.
        answers: Text and problem of each.

    Returns:
        One score per answer, in their order.

    """
    return verifier.verify([text for text, _ in answers], [problem for _, problem in answers])


class VerifierCache:
    """Scores answers, the same answer to the same problem once, as long as it is remembered.

    What was not used for longest is forgotten first, so that a long run keeps its memory. An answer
    that could not be judged is not remembered.

    Args:
        verify: What scores answers that are not remembered.
        max_bytes: Memory that may be spent, about.

    """

    def __init__(
        self,
        verify: Callable[[Sequence[Answer]], list[Score]] = verify_all,
        *,
        max_bytes: int = _CACHE_BYTES,
    ) -> None:
        self._verify, self._max_bytes = verify, max_bytes
        self._known: OrderedDict[Answer, Score] = OrderedDict()
        self._num_bytes = 0

    def __call__(self, answers: Sequence[Answer]) -> list[Score]:
        """Return the score of each answer, in their order; new ones are verified all at once."""
        scores = {answer: self._known[answer] for answer in answers if answer in self._known}
        new = [answer for answer in dict.fromkeys(answers) if answer not in scores]
        for answer in scores:
            self._known.move_to_end(answer)
        # Asked for even where nothing is new: with several processes all of them ask together.
        scores |= zip(new, self._verify(new), strict=True)
        for answer in new:
            # What could not be judged may be judged the next time.
            if scores[answer].value is not None:
                self._known[answer] = scores[answer]
                self._num_bytes += _size(answer)
        while self._num_bytes > self._max_bytes:
            oldest, _ = self._known.popitem(last=False)
            self._num_bytes -= _size(oldest)
        return [scores[answer] for answer in answers]

    def __len__(self) -> int:
        """Count the answers that are remembered."""
        return len(self._known)


def _size(answer: Answer) -> int:
    return len(answer[0]) + _ENTRY_BYTES
