"""How many words, sentences and paragraphs a text has."""

import re
from typing import Literal

from pydantic import Field

from posttrain.learning.rewards.constraints.base import Constraint, Relation, within

# An end of a sentence: punctuation, quotes that close it, and a blank or the end of the text.
_SENTENCE_END = re.compile(r"[.!?]+[\"')\]]*(?=\s|$)")
_ABBREVIATION = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Prof|Inc|Ltd|Jr|Sr|Co|e\.g|i\.e)|\b[A-Z])\.$")


class NumberOfWords(Constraint):
    r"""Ask for a number of words: runs of letters, digits and underscores."""

    kind: Literal["length_constraints:number_words"] = "length_constraints:number_words"
    num_words: int = Field(ge=0)
    """How many."""
    relation: Relation
    """Whether that is the least, or too much."""

    def followed(self, text: str) -> bool:
        """Count them; see `Constraint.followed`."""
        return within(len(re.findall(r"\w+", text)), self.relation, self.num_words)


class NumberOfSentences(Constraint):
    """Ask for a number of sentences, told by a rule where IFEval asks a trained model (punkt)."""

    kind: Literal["length_constraints:number_sentences"] = "length_constraints:number_sentences"
    num_sentences: int = Field(ge=0)
    """How many."""
    relation: Relation
    """Whether that is the least, or too much."""

    def followed(self, text: str) -> bool:
        """Count them; see `Constraint.followed`."""
        return within(_num_sentences(text), self.relation, self.num_sentences)


class NumberOfParagraphs(Constraint):
    """Ask for paragraphs that Markdown's divider, three asterisks, parts."""

    kind: Literal["length_constraints:number_paragraphs"] = "length_constraints:number_paragraphs"
    num_paragraphs: int = Field(ge=0)
    """Just so many."""

    def followed(self, text: str) -> bool:
        """Count them: the first and the last may be empty; see `Constraint.followed`."""
        paragraphs = [each.strip() for each in text.split("***")]
        filled = [bool(each) for each in paragraphs]
        return all(filled[1:-1]) and sum(filled) == self.num_paragraphs


class FirstWordOfParagraph(Constraint):
    """Ask for paragraphs that an empty line parts, and for the first word of one of them."""

    kind: Literal["length_constraints:nth_paragraph_first_word"] = (
        "length_constraints:nth_paragraph_first_word"
    )
    num_paragraphs: int = Field(ge=1)
    """Just so many."""
    nth_paragraph: int = Field(ge=1)
    """Which one, from 1."""
    first_word: str
    """Its first word, in upper or lower case."""

    def followed(self, text: str) -> bool:
        """Look at the paragraph; see `Constraint.followed`."""
        paragraphs = text.split("\n\n")
        count = sum(bool(each.strip()) for each in paragraphs)
        if count != self.num_paragraphs or self.nth_paragraph > count:
            return False
        words = paragraphs[self.nth_paragraph - 1].split()
        first = re.split(r"[.,?!'\"]", words[0].lstrip("'").lstrip('"'))[0] if words else ""
        return bool(words) and first.lower() == self.first_word.lower()


def _num_sentences(text: str) -> int:
    ends = [end.end() for end in _SENTENCE_END.finditer(text)]
    ends = [end for end in ends if not _ABBREVIATION.search(text[max(0, end - 8) : end])]
    return len(ends) + bool(text[ends[-1] if ends else 0 :].strip())
