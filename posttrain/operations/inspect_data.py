"""What a file of rows holds: its format, lengths in tokens, what is of no use, a row as tokens."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.data.chat_templates.unwritten import LeftOut
from posttrain.data.contexts import LearnedTurns, PromptContext, in_context
from posttrain.data.formats.base import RawRow, RowFormat
from posttrain.data.formats.detect import Reading, detect, sampled
from posttrain.data.formats.forms import Form, Unfit
from posttrain.data.row_files import FileRow, file_rows
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MOST_ENCODED = 10_000
"""Rows whose tokens are counted; the first ones of a file."""
_SHOWN_COMPLAINTS = 5
_CHARACTERS = "characters"
_EMPTY = "there is nothing in it to learn"


@dataclass(frozen=True)
class LengthSpread:
    """How long something is, in the rows of a file."""

    median: int
    p95: int
    longest: int

    @classmethod
    def of(cls, lengths: Sequence[int]) -> "LengthSpread":
        """Measure lengths by nearest rank: half, and 95 of 100, are at most as long.

        >>> LengthSpread.of([5, 1, 3, 2, 4])
        LengthSpread(median=3, p95=5, longest=5)

        """
        ordered = sorted(lengths)
        ranks = (math.ceil(share * len(ordered)) - 1 for share in (0.5, 0.95, 1.0))
        return cls(*(ordered[rank] for rank in ranks))


@dataclass(frozen=True)
class ShownSpan:
    """Tokens that stand together in a row, as text, and whether they bear loss."""

    tokens: tuple[str, ...]
    learned: bool


@dataclass(frozen=True)
class ShownRow:
    """One row as a model reads it."""

    where: str
    side: str
    """Empty, or which of two answers it is."""
    spans: tuple[ShownSpan, ...]


@dataclass
class Inspection:
    """What was found in a file."""

    reading: Reading
    num_rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """Rows of no use, by reason; those that stand twice as `duplicate`."""
    broken: list[str] = field(default_factory=list)
    """What is wrong with the first rows that cannot be read."""
    num_broken: int = 0
    num_usable: int = 0
    num_measured: int = 0
    unit: str = _CHARACTERS
    lengths: dict[str, list[int]] = field(default_factory=dict)
    """Lengths of each part of the rows that were measured."""
    shown: list[ShownRow] = field(default_factory=list)

    def spreads(self) -> dict[str, LengthSpread]:
        """How long each part of the rows is."""
        return {name: LengthSpread.of(lengths) for name, lengths in self.lengths.items() if lengths}

    def complain(self, error: UserError) -> None:
        """Count a row that cannot be read, and keep what is wrong with the first ones."""
        self.num_rows += 1
        self.num_broken += 1
        if len(self.broken) < _SHOWN_COMPLAINTS:
            self.broken.append(str(error))

    def over(self, part: str, limit: int) -> int:
        """Count the measured rows of which a part is longer than a limit."""
        return sum(length > limit for length in self.lengths.get(part, ()))


@dataclass(frozen=True)
class Encoding:
    """By what rows become tokens."""

    tokenizer: "PreTrainedTokenizerBase"
    turns: LearnedTurns = "last"


def inspect_file(
    path: Path,
    *,
    wanted: RowFormat | None = None,
    split: str = "",
    encoding: Encoding | None = None,
    line: int | None = None,
) -> Inspection:
    """Read a file whole, convert every row, and measure the first `MOST_ENCODED`.

    Args:
        path: File, folder of files, or saved data set.
        wanted: The format, where somebody said which.
        split: Of a data set with several.
        encoding: A model's tokenizer; without it lengths are counted in characters.
        line: Which row is shown, by its number; the first that can be learned without it.

    Returns:
        What was found.

    Raises:
        UserError: The file cannot be read, is of no format or of two, or has no such row.

    """
    found = Inspection(detect(_sample(path, split), where=str(path), wanted=wanted))
    found.unit = "tokens" if encoding else _CHARACTERS
    left_out = LeftOut(encoding.tokenizer) if encoding else None
    seen: set[tuple[str, ...]] = set()
    for row in file_rows(path, split=split, complain=found.complain):
        found.num_rows += 1
        for form in _forms(found, row):
            texts = _texts(found, form)
            if texts is None:
                continue
            if left_out and (reason := _unwritten(left_out, form)):
                found.left_out[reason] += 1
                continue
            if texts in seen:
                found.left_out["duplicate"] += 1
                continue
            seen.add(texts)
            found.num_usable += 1
            wants_shown = not found.shown if line is None else row.number == line
            if found.num_usable <= MOST_ENCODED or wants_shown:
                _measure(found, form, row.where, encoding, show=wants_shown)
    if line is not None and not found.shown:
        raise UserError(f"{path} has no row {line} that can be learned; leave --row out")
    return found


def _sample(path: Path, split: str) -> list[RawRow]:
    """Read the first rows; broken lines are left to the second reading, which counts them."""
    broken: list[UserError] = []
    try:
        return sampled(path, split=split, complain=broken.append)
    except UserError as error:
        # Where no line can be read, the first one tells more than that there are no rows.
        raise (broken or [error])[0] from None


def _forms(found: Inspection, row: FileRow) -> list[Form]:
    """What a row becomes; what is wrong with it is noted."""
    try:
        forms = list(found.reading.format.convert(row.record, row.where))
    except UserError as error:
        found.num_rows -= 1
        found.complain(error)
        return []
    if not forms:
        found.left_out[_EMPTY] += 1
    return forms


@dataclass(frozen=True)
class _Asked:
    """Texts that follow one prompt."""

    prompt: str
    context: PromptContext
    answers: Mapping[str, str]


def _asked(form: Form) -> _Asked:
    if form.TEACHES:
        taught = form.taught()
        return _Asked(taught.prompt, taught.context, {"": taught.answer})
    judged = form.judged()
    sides = {"chosen": judged.chosen, "rejected": judged.rejected}
    return _Asked(
        judged.prompt, judged.context, {name: text for name, text in sides.items() if text}
    )


def _texts(found: Inspection, form: Form) -> tuple[str, ...] | None:
    """All that a row says, to know it again; None where it is of no use."""
    try:
        asked = _asked(form)
    except Unfit as reason:
        found.left_out[str(reason)] += 1
        return None
    return (asked.context.written(), asked.prompt, *asked.answers, *asked.answers.values())


def _unwritten(left_out: LeftOut, form: Form) -> str | None:
    """Why the template does not write a row whole, whichever answer it has; None where it does."""
    asked = _asked(form)
    reasons = (left_out.of(asked.prompt, asked.context, text) for text in asked.answers.values())
    return next(filter(None, reasons), None)


def _measure(
    found: Inspection, form: Form, where: str, encoding: Encoding | None, *, show: bool
) -> None:
    asked = _asked(form)
    found.num_measured += 1
    longest = 0
    for side, answer in asked.answers.items():
        if encoding is None:
            prompt, learned = len(asked.prompt), len(answer)
            messages = asked.context.messages(asked.prompt)
            whole = learned + sum(len(str(each.get("content") or "")) for each in messages)
        else:
            ids, learned_at = _encoded(asked, answer, encoding)
            learned = sum(learned_at)
            prompt, whole = len(ids) - learned, len(ids)
            if show:
                spans = _spans(ids, learned_at, encoding.tokenizer)
                found.shown.append(ShownRow(where, side, spans))
        found.lengths.setdefault(side or "answer", []).append(learned)
        longest = max(longest, whole)
    found.lengths.setdefault("prompt", []).append(prompt)
    found.lengths.setdefault("whole row", []).append(longest)


def _encoded(asked: _Asked, answer: str, encoding: Encoding) -> tuple[Sequence[int], list[bool]]:
    """Encode a row as training does: its tokens, and which of them bear loss."""
    from posttrain.data.rows import encode_rows

    prompts = in_context([asked.prompt], [asked.context.written()])
    (row,) = encode_rows(encoding.tokenizer, prompts, [answer], turns=encoding.turns)
    learned = [place >= row.start for place in range(len(row.ids))]
    for begin, end in row.silent:
        learned[begin:end] = [False] * (end - begin)
    return row.ids, learned


def _spans(
    ids: Sequence[int], learned: Sequence[bool], tokenizer: "PreTrainedTokenizerBase"
) -> tuple[ShownSpan, ...]:
    texts = [tokenizer.decode([token], clean_up_tokenization_spaces=False) for token in ids]
    spans: list[ShownSpan] = []
    begin = 0
    for place in range(1, len(ids) + 1):
        if place == len(ids) or learned[place] != learned[begin]:
            spans.append(ShownSpan(tuple(texts[begin:place]), learned[begin]))
            begin = place
    return tuple(spans)
