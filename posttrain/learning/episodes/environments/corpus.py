"""A corpus that the policy may search before it answers: passages of somebody's own files."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from pydantic import Field

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    Environment,
    EpisodeState,
    Situation,
)
from posttrain.learning.episodes.environments.calls import last_call, tool_answered
from posttrain.learning.episodes.excerpt import excerpt
from posttrain.learning.episodes.retrieval import best_passages
from posttrain.stage.declared import read_path
from posttrain.stage.errors import UserError, nearest

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class CorpusSearch(Environment):
    """Answer calls such as `search(who built it)` at the end of a turn; one without a call is last.

    A call is answered by the passages that fit best by BM25, a line each. Passages are the rows of
    a file, or of all files in a folder. What answers the question is scored by the problem's own
    verifier. `searches` counts the calls, and `tool_errors` those that found nothing.

    Source: own; passages by BM25 as the package bm25s ranks them.
    """

    PACKAGES: ClassVar[frozenset[str]] = frozenset({"bm25s"})

    kind: Literal["corpus"] = "corpus"
    file: str = Field(min_length=1)
    """File or folder of passages, from the recipe's folder on: JSON lines, parquet, text (a passage
    a line) and what else rows are read from. It counts by content, like an input."""
    column: str = "text"
    """Column of the passages; `text` of a file of text."""
    shown: int = Field(default=3, ge=1)
    """Passages that a call shows."""
    most_characters: int = Field(default=1000, ge=1)
    """Of a passage that is shown; all of it is searched."""
    name: str = Field(default="search", pattern=r"^[a-z_]+$")
    """How a call is spelled."""
    author: Literal["tool", "user"] = "tool"
    """As whose message the chat template writes what was found; `user` for one without tools."""

    def read_files(self) -> tuple[str, ...]:
        """Name the passages' file; see `StageConfig.read_files`."""
        return (self.file,)

    def start(self, problem: "Problem", seed: int) -> Situation:  # noqa: ARG002 - see the base
        """Ask; see `Environment.start`."""
        return Situation({}, (Ask(POLICY),))

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Search for what is called for; see `Environment.step`."""
        (act,) = acts
        called = last_call(act.text, (self.name,))
        if called is None or act.cut:
            return Situation(state)
        passages = self._passages()
        found = best_passages(passages.texts, called[1], self.shown)
        lines = [" ".join(passages.texts[place].split()) for place in found]
        shown = [excerpt(line, self.most_characters) for line in lines]
        facts = {"searches": 1.0} if found else {"searches": 1.0, "tool_errors": 1.0}
        text = "\n".join(shown) or "nothing found"
        read = tuple(passages.places[place] for place in found)
        return tool_answered(
            state, text, name=self.name, author=self.author, facts=facts, read=read
        )

    def authors(self) -> tuple[str, ...]:
        """Name who speaks; see `Environment.authors`."""
        return (self.author,)

    def _passages(self) -> "_Passages":
        path = read_path(self.file)
        if not path.exists():
            raise UserError(f"environment corpus: {self.file} is not there; correct `file`")
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        stats = [file.stat() for file in files]
        # A stage reads files that stay as they are; a process may outlive a stage.
        version = tuple((each.st_mtime_ns, each.st_size) for each in stats)
        return _read(path.resolve(), self.file, self.column, version)


class _Passages(NamedTuple):
    texts: tuple[str, ...]
    places: tuple[str, ...]
    """`FILE:LINE` of each."""


@lru_cache(maxsize=2)
def _read(path: Path, name: str, column: str, version: tuple[tuple[int, int], ...]) -> _Passages:  # noqa: ARG001 - what is kept is of this version
    from posttrain.data.row_files import file_rows

    texts, places = [], []
    for row in file_rows(path, name=name):
        if column not in row.record:
            raise UserError(
                f"environment corpus: {row.where} has no column '{column}'"
                f"{nearest(column, row.record) or '; it has ' + ', '.join(row.record)};"
                " let `column` name that of the passages"
            )
        text = row.record[column]
        if not isinstance(text, str):
            raise UserError(
                f"environment corpus: '{column}' of {row.where} is no text; let `column` name a"
                " column of texts"
            )
        if text.strip():
            texts.append(text)
            places.append(row.where)
    if not texts:
        raise UserError(f"environment corpus: {name} holds no passage; give it rows with a text")
    return _Passages(tuple(texts), tuple(places))
