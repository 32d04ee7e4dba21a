"""What a stage takes of rows that somebody brings: answers to learn, or answers told apart."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from posttrain.data.contexts import PromptContext
from posttrain.data.formats.detect import Reading
from posttrain.data.formats.forms import Form, JudgedAnswers, TaughtAnswer
from posttrain.stage.errors import UserError

Taken = TypeVar("Taken")


@dataclass(frozen=True)
class Wanted(Generic[Taken]):
    """What a stage takes of a row."""

    take: Callable[[Form], Taken]
    """Takes it, or raises `Unfit`."""
    asked: Callable[[Taken], str]
    """The prompt in its context: rows with one prompt are on one side."""
    content: Callable[[Taken], str]
    """All of it: equal rows are there once."""
    suits: Callable[[type[Form]], bool]
    """Whether a form has it at all."""
    what: str
    """What this stage takes, and which stage takes the other forms, for errors."""

    def check(self, reading: Reading, path: str) -> None:
        """Refuse a file whose rows have something else.

        Args:
            reading: How they are read.
            path: The file, for errors.

        Raises:
            UserError: They do; the stage that takes them is named.

        """
        form = reading.format.FORM
        if not self.suits(form):
            kind = reading.format.kind
            raise UserError(f"{path}: format {kind} gives {form.WHAT}, and {self.what}")


def _in_context(prompt: str, context: PromptContext) -> str:
    return f"{context.written()}\n{prompt}"


TAUGHT: Wanted[TaughtAnswer] = Wanted(
    take=lambda form: form.taught(),
    # A text that answers nothing stands for itself, or all of them would be on one side.
    asked=lambda row: _in_context(row.prompt or row.answer, row.context.asking()),
    content=lambda row: f"{_in_context(row.prompt, row.context)}\n\0{row.answer}",
    suits=lambda form: form.TEACHES,
    what="import_chats takes what has one answer to learn; import_pairs takes preferences and"
    " labels",
)
"""What `import_chats` takes."""

JUDGED: Wanted[JudgedAnswers] = Wanted(
    take=lambda form: form.judged(),
    asked=lambda row: _in_context(row.prompt, row.context),
    content=lambda row: f"{_in_context(row.prompt, row.context)}\n\0{row.chosen}\n\0{row.rejected}",
    suits=lambda form: form.JUDGES,
    what="import_pairs takes preferences and labels; import_chats takes what has one answer to"
    " learn",
)
"""What `import_pairs` takes."""
