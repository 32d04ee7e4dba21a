"""Queries for documents of a small collection, answered by a document's identifier."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from posttrain.data.sources.base import Source, SourceRequest, SourceRows
from posttrain.data.teachers.base import Solution, Teacher
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import stable_seed
from posttrain.stage.slots import InSlot, Part

if TYPE_CHECKING:
    from pathlib import Path

    from posttrain.data.schemas import Problem

_SYLLABLES = ["ba", "co", "du", "fe", "gi", "ho", "ju", "ka", "le", "mi", "no", "pu"]
_Document = tuple[str, Sequence[str]]


class DocidSource(Source):
    """Makes a collection, and queries that ask for its documents by some of their words.

    A document is a handful of words that others share, and its identifier begins with the syllable
    of its topic, whose words are likelier in it. What is learned from is documents and queries with
    their identifiers, and for each query wrong ones too: those of the documents that share most of
    its words with it. These are in the corpus, as solutions that no verifier accepts.
    """

    SOURCE = (
        "generative retrieval: DDRO, arXiv 2504.05181; hard negatives in place of those by BM25,"
        " kidist-amde/ddro at 196e5d0, ddro/data/data_preprocessing/bm25_negative_sampling.py"
    )

    kind: Literal["docids"] = "docids"
    name: str = "docids"
    """Name of the source."""
    documents: int = Field(default=60, ge=2, le=400)
    """Documents of the collection."""
    words: int = Field(default=6, ge=2, le=57)
    """Words of a document."""
    asked: int = Field(default=2, ge=1)
    """Words of a query."""
    negatives: int = Field(default=3, ge=1)
    """Wrong identifiers of a query."""
    verifier: Annotated[Part, InSlot("verifier")] = Field(
        default={"kind": "exact", "answer": "whole"}, validate_default=True
    )
    """What scores an identifier."""

    @model_validator(mode="after")
    def _asks_for_words_that_there_are(self) -> Self:
        if self.asked > self.words:
            raise ValueError(
                f"a query asks for {self.asked} words of a document that has {self.words}; set"
                " asked to words at most"
            )
        return self

    def without_solutions(self, teacher: Teacher, path: "Path | None") -> str:  # noqa: ARG002
        """Say that it has solutions; see `TellsSolutions`."""
        return ""

    def read(self, request: SourceRequest) -> SourceRows:
        """Ask for each document in turn, held-out queries first; see `Source.read`."""
        collection = self._collection(request.seed)
        draw = Random(stable_seed(request.seed, self.name, "queries"))
        rows, seen = SourceRows(), {*request.sides}
        wanted = request.num_heldout + request.num_problems
        for number in range(20 * wanted):
            document = collection[number % len(collection)]
            query = f"find {' '.join(sorted(draw.sample(list(document[1]), self.asked)))}"
            if query in seen:
                continue
            seen.add(query)
            if len(rows.heldout) < request.num_heldout:
                rows.heldout.append(self._posed(query, document))
                continue
            rows.train.append(self._posed(query, document))
            answers = [document[0], *self._close(query, document, collection)]
            rows.solutions.extend(Solution(rows.train[-1], text, "docids") for text in answers)
            if len(rows.train) == request.num_problems:
                break
        made = len(rows.heldout) + len(rows.train)
        if made < wanted:
            raise UserError(
                f"synthesize.sources: {self.name} has {made} different queries of {self.documents}"
                f" documents, and {wanted} are asked for; set documents or words higher, or"
                " num_problems lower"
            )
        for document in collection:
            whole = self._posed(f"read {' '.join(document[1])}", document)
            rows.train.append(whole)
            rows.solutions.append(Solution(whole, document[0], "docids"))
        return rows

    def _collection(self, seed: int) -> list[_Document]:
        draw = Random(stable_seed(seed, self.name, "collection"))
        known = [one + other for one in _SYLLABLES for other in _SYLLABLES[:5]]
        found: list[_Document] = []
        for number in range(self.documents):
            topic = number % len(_SYLLABLES)
            likely = known[5 * topic : 5 * topic + 5]
            words = [*draw.sample(likely, min(3, self.words - 1))]
            words += draw.sample([each for each in known if each not in words], self.words)
            place = number // len(_SYLLABLES)
            found.append((f"{_SYLLABLES[topic]}{place}", words[: self.words]))
        return found

    def _posed(self, prompt: str, document: _Document) -> "Problem":
        from posttrain.data.schemas import Problem

        given: dict[str, Any] = {"source": self.name, "difficulty": 1, "verifier": ""}
        return Problem(prompt=prompt, answer=document[0], **given)

    def _close(self, query: str, document: _Document, collection: Sequence[_Document]) -> list[str]:
        """Identifiers of the other documents that share most words with a query, then with its
        document.
        """
        asked = {*query.split()}

        def shared(other: _Document) -> tuple[int, int, str]:
            words = {*other[1]}
            return -len(asked & words), -len({*document[1]} & words), other[0]

        others = sorted((each for each in collection if each is not document), key=shared)
        return [each[0] for each in others[: self.negatives]]
