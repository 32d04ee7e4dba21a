"""A better and a worse answer, with the prompt beside them or inside both."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from posttrain.data.contexts import Message
from posttrain.data.formats.base import RawRow, RowFormat, is_text, plain_text
from posttrain.data.formats.forms import Conversation, Form, PreferencePair
from posttrain.data.formats.messages import is_spoken, spoken
from posttrain.data.formats.prompt_completion import conversation_up_to
from posttrain.stage.errors import UserError

_SPEAKER = re.compile(r"(?:\A|\n\n)(Human|Assistant):[ \n]?")
_ROLES = {"Human": "user", "Assistant": "assistant"}


class PreferenceFormat(RowFormat):
    """Read a chosen and a rejected answer: texts, messages, or dialogs of Human and Assistant."""

    SOURCE = "TRL, 'Dataset formats': preference; Bai et al. 2022 (HH-RLHF)"
    FORM = PreferencePair
    NAMES: ClassVar[Mapping[str, Sequence[str]]] = {
        "chosen": ("chosen",),
        "rejected": ("rejected",),
        "prompt": ("prompt", "question", "instruction", "input"),
        "system": ("system", "system_prompt"),
        "chosen_score": ("chosen_score", "score_chosen", "chosen_rating"),
        "rejected_score": ("rejected_score", "score_rejected", "rejected_rating"),
        "weight": ("weight",),
    }
    NEEDED = frozenset({"chosen", "rejected"})

    kind: Literal["preference"] = "preference"

    def fits(self, record: RawRow) -> bool:
        """Find texts or messages on both sides, and what was asked."""
        sides = [self.value(record, name) for name in ("chosen", "rejected")]
        if all(is_spoken(side) for side in sides):
            return True
        asked = self.value(record, "prompt")
        known = is_text(asked) or is_spoken(asked) or all(map(_is_dialog, sides))
        return known and all(is_text(side) for side in sides)

    def convert(self, record: RawRow, where: str) -> Iterator[Form]:
        """Tell what both sides begin with from the answers."""
        prompt = self.value(record, "prompt")
        asked: tuple[Message, ...] = ()
        if prompt is not None:
            system = self.text(record, "system", where)
            asked = conversation_up_to(prompt, f"{where}: prompt", system=system).messages
        sides = [self._said(record, name, where) for name in ("chosen", "rejected")]
        chosen, rejected = (_behind(asked, side) for side in sides)
        if not asked:
            asked, chosen, rejected = _common(chosen, rejected)
        if not asked:
            raise UserError(
                f"{where}: there is no prompt, and chosen and rejected do not begin with the same"
                " message; map a column to prompt"
            )
        for name, answers in (("chosen", chosen), ("rejected", rejected)):
            if len(answers) != 1 or answers[0]["role"] != "assistant":
                raise UserError(
                    f"{where}: {name} has {len(answers)} messages behind what both begin with, and"
                    " one answer of the assistant is compared; cut both behind the first answer"
                    " that differs"
                )
            if not answers[0]["content"] or answers[0].get("tool_calls"):
                raise UserError(f"{where}: the answer in {name} has no text; drop the row")
        weight = self.number(record, "weight", where)
        if weight is not None and weight <= 0:
            raise UserError(f"{where}: weight must be above 0; drop a row that is to count nothing")
        yield PreferencePair(
            Conversation(asked),
            chosen[0]["content"],
            rejected[0]["content"],
            self.number(record, "chosen_score", where),
            self.number(record, "rejected_score", where),
            1.0 if weight is None else weight,
        )

    def _said(self, record: RawRow, name: str, where: str) -> tuple[Message, ...]:
        """One side as messages."""
        value = self.value(record, name)
        if is_spoken(value):
            return tuple(spoken(value, f"{where}: {name}"))
        text = self.text(record, name, where)
        if _is_dialog(text):
            return _dialog(text)
        return ({"role": "assistant", "content": plain_text(text, where)},)


def _is_dialog(value: Any) -> bool:
    """Whether a text is turns of `Human:` and `Assistant:`."""
    found = _SPEAKER.match(value.strip()) if isinstance(value, str) else None
    return found is not None and found[1] == "Human" and len(_SPEAKER.findall(value.strip())) > 1


def _dialog(text: str) -> tuple[Message, ...]:
    parts = _SPEAKER.split(text.strip())[1:]
    return tuple(
        {"role": _ROLES[who], "content": said.strip()}
        for who, said in zip(parts[::2], parts[1::2], strict=True)
    )


def _behind(asked: Sequence[Message], side: Sequence[Message]) -> tuple[Message, ...]:
    """What a side says behind the prompt, which it may repeat, with the system prompt or not."""
    for known in (tuple(asked), tuple(each for each in asked if each["role"] != "system")):
        if known and tuple(side[: len(known)]) == known:
            return tuple(side[len(known) :])
    return tuple(side)


def _common(
    chosen: Sequence[Message], rejected: Sequence[Message]
) -> tuple[tuple[Message, ...], tuple[Message, ...], tuple[Message, ...]]:
    """Cut both where they first differ: what they share, and the two rests."""
    same = 0
    for one, other in zip(chosen, rejected, strict=False):
        if one != other:
            break
        same += 1
    # The answer itself is never shared, be it the same.
    same = min(same, len(chosen) - 1, len(rejected) - 1)
    return tuple(chosen[:same]), tuple(chosen[same:]), tuple(rejected[same:])
