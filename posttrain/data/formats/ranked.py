"""Several answers to a prompt with scores or ranks."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any, ClassVar, Literal

from posttrain.data.formats.base import RawRow, RowFormat, as_list, finite, is_text, plain_text
from posttrain.data.formats.forms import Form, PreferencePair
from posttrain.data.formats.messages import is_spoken
from posttrain.data.formats.prompt_completion import conversation_up_to
from posttrain.data.sources.columns import clipped
from posttrain.stage.errors import UserError

_TEXTS = ("text", "response", "content", "completion", "answer", "output")
_SCORES = ("score", "rating", "overall_score", "reward")
_RANK = "rank"


class RankedFormat(RowFormat):
    """Read a prompt and a list of answers with scores (more is better) or ranks (1 is best)."""

    SOURCE = "Ouyang et al. 2022 (InstructGPT), section 3.5; UltraFeedback"
    FORM = PreferencePair
    NAMES: ClassVar[Mapping[str, Sequence[str]]] = {
        "prompt": ("prompt", "instruction", "question", "query"),
        "completions": ("completions", "responses", "answers", "candidates"),
        "scores": ("scores", "ratings", "rewards"),
        "ranks": ("ranks", "ranking"),
        "system": ("system", "system_prompt"),
    }
    NEEDED = frozenset({"prompt", "completions"})

    kind: Literal["ranked"] = "ranked"
    pairs: Literal["best_worst", "adjacent", "all"] = "best_worst"
    """Which pairs a list gives: the best against the worst, each against the next, or all."""
    best_first: bool = False
    """True where a list without scores and ranks is in order."""

    def fits(self, record: RawRow) -> bool:
        """Find a list of answers, and what says how good they are."""
        listed = as_list(self.value(record, "completions"))
        prompt = self.value(record, "prompt")
        if not listed or is_spoken(listed) or not (is_text(prompt) or is_spoken(prompt)):
            return False
        if all(isinstance(each, Mapping) for each in listed):
            return all(_first(each, _TEXTS) is not None for each in listed) and (
                self._has_order(record) or all(_goodness(each) is not None for each in listed)
            )
        return all(map(is_text, listed)) and self._has_order(record)

    def convert(self, record: RawRow, where: str) -> Iterator[Form]:
        """Set better answers against worse ones; equal ones give no pair."""
        asked = conversation_up_to(
            self.value(record, "prompt"),
            f"{where}: prompt",
            system=self.text(record, "system", where),
        )
        answers = as_list(self.value(record, "completions"))
        if answers is None:
            raise UserError(f"{where}: completions must be a list of answers")
        texts = [_text(each, f"{where}: completion {n}") for n, each in enumerate(answers, 1)]
        scores = self._scores(record, answers, where)
        stated = self.value(record, "scores") is not None or not self._has_order(record)
        # Stable, so that of equal ones the first stays first.
        ordered = sorted(zip(texts, scores, strict=True), key=lambda each: -each[1])
        for (chosen, best), (rejected, worst) in self._chosen(ordered):
            if best > worst and chosen != rejected:
                told = (best, worst) if stated else (None, None)
                yield PreferencePair(asked, chosen, rejected, *told)

    def _chosen(
        self, ordered: Sequence[tuple[str, float]]
    ) -> Iterator[tuple[tuple[str, float], tuple[str, float]]]:
        if self.pairs == "best_worst":
            yield from [(ordered[0], ordered[-1])] if ordered else []
        elif self.pairs == "adjacent":
            yield from pairwise(ordered)
        else:
            yield from combinations(ordered, 2)

    def _has_order(self, record: RawRow) -> bool:
        lists = (self.value(record, name) for name in ("scores", "ranks"))
        return self.best_first or any(as_list(each) is not None for each in lists)

    def _scores(self, record: RawRow, answers: Sequence[Any], where: str) -> list[float]:
        """How good each answer is: more is better."""
        for name, sign in (("scores", 1.0), ("ranks", -1.0)):
            listed = as_list(self.value(record, name))
            if listed is not None:
                if len(listed) != len(answers):
                    raise UserError(
                        f"{where}: there are {len(listed)} {name} for {len(answers)} answers"
                    )
                return [sign * finite(each, f"{where}: {name}") for each in listed]
        if self.best_first:
            return [-float(place) for place in range(len(answers))]
        found = [_goodness(each) for each in answers]
        for number, each in enumerate(found, 1):
            if each is None:
                raise UserError(
                    f"{where}: completion {number} has no {', '.join(_SCORES)} or {_RANK}"
                )
        return [finite(value, f"{where}: score") * sign for value, sign in filter(None, found)]


def _text(answer: Any, what: str) -> str:
    value = _first(answer, _TEXTS) if isinstance(answer, Mapping) else answer
    text = plain_text(value, what)
    if not text:
        raise UserError(f"{what} has no text: {clipped(answer)}; leave it out of the list")
    return text


def _goodness(answer: Any) -> tuple[Any, float] | None:
    """The score of an answer that is an object, or its rank turned round; None without either."""
    if not isinstance(answer, Mapping):
        return None
    score, rank = _first(answer, _SCORES), answer.get(_RANK)
    if score is not None:
        return score, 1.0
    return None if rank is None else (rank, -1.0)


def _first(answer: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((answer[name] for name in names if answer.get(name) is not None), None)
