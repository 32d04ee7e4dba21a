"""What the problem's own verifier says of an answer: many answers at once, each asked once."""

import json
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Verify
from posttrain.learning.rewards.score import Score, of_play
from posttrain.learning.rewards.verifiers.base import ByPlay, Verifier
from posttrain.learning.rewards.verifiers.registry import VERIFIERS
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import canonical_json
from posttrain.stage.identity import identity

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

Answer = tuple[str, "Problem"]
"""What a model wrote, and the problem that it was asked."""

_CACHE_BYTES = 256 << 20
_ENTRY_BYTES = 400
"""Bytes that an entry of the cache takes beside its text, about."""


class VerifierComponent(Component):
    """1 for an answer that the problem's verifier accepts in full, else 0; or its graded score.

    Partial credit would pay the policy for being wrong: reasoning-gym's arithmetic grants it for an
    answer that merely contains the right digits.

    Source: DeepSeek-R1, arXiv 2501.12948 (accuracy rewards).
    """

    SAYS_SOLVED: ClassVar[bool] = True

    kind: Literal["verifier"] = "verifier"
    graded: bool = False
    """Pay the verifier's score in [0, 1] rather than 0 or 1."""

    def judged_by(self, problem: "Problem") -> str:
        """Name the problem's verifier, with its source's parameters; see `Component.judged_by`."""
        from posttrain.data.schemas import row_id

        # Parameters of the row itself, such as its tests, are a part of what is asked.
        said = [identity(self), problem.verifier or problem.scored_by]
        return f"{verifier_of(problem).kind}.{row_id(canonical_json(said))}"

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Ask the verifier; see `Component.score`."""
        return self.score_all([group], known)[0]

    def score_all(
        self, groups: Sequence[Answers], known: Inquiry
    ) -> Sequence[Sequence[float | None]]:
        """Ask about all answers at once; see `Component.score_all`."""
        answers = [(text, group.problem) for group in groups for text in group.texts]
        played = [earned for group in groups for earned in group.earned]
        scores = iter(scores_of(answers, played, known.verify))
        earned = [[next(scores) for _ in group.texts] for group in groups]
        if self.graded:
            return [[score.value for score in group] for group in earned]
        return [[_paid(score.correct) for score in group] for group in earned]


def scores_of(
    answers: Sequence[Answer], played: Sequence[Sequence[float]], verify: Verify
) -> list[Score]:
    """Score answers, of which some may have been played.

    Args:
        answers: Texts and what they answer.
        played: What the environment paid for each turn of each answer; empty for an answer that
            was not played, and for all where none was.
        verify: Asks the verifiers of the others.

    Returns:
        One score per answer, in their order.

    """
    if not any(played):
        return verify(answers)
    known = {
        place: of_play(math.fsum(earned))
        for place, (earned, (_, problem)) in enumerate(zip(played, answers, strict=True))
        if earned and isinstance(verifier_of(problem), ByPlay)
    }
    asked = iter(verify([each for place, each in enumerate(answers) if place not in known]))
    return [known[place] if place in known else next(asked) for place in range(len(answers))]


def _paid(correct: bool | None) -> float | None:
    return None if correct is None else float(correct)


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
