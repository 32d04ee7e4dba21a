"""A format knows rows by their columns, and converts them. In the recipe:

import_chats:
  sources: [{path: tickets.jsonl, format: {kind: ticket, greeting: Hello!}}]
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from posttrain.data.formats.base import RowFormat
from posttrain.data.formats.forms import Conversation, Form


class Ticket(RowFormat):
    """Read what a customer asked, and what the last agent wrote."""

    FORM = Conversation
    NAMES = {"subject": ("subject",), "replies": ("replies",)}
    NEEDED = frozenset({"subject", "replies"})

    kind: Literal["ticket"] = "ticket"
    greeting: str = ""
    """What every answer begins with."""

    def fits(self, record: Mapping[str, Any]) -> bool:
        """Find a list of replies."""
        return isinstance(self.value(record, "replies"), list)

    def convert(self, record: Mapping[str, Any], where: str) -> Iterator[Form]:
        """Put the last reply behind the subject."""
        asked = self.text(record, "subject", where)
        said = f"{self.greeting} {self.value(record, 'replies')[-1]}".strip()
        messages = ({"role": "user", "content": asked}, {"role": "assistant", "content": said})
        yield Conversation(messages)


PARTS = {"format": {"ticket": Ticket}}
