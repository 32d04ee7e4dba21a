"""Words of a few letters, so few that all of them can be asked for."""

import json
from random import Random
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from posttrain.data.sources.numbered import NumberedSource
from posttrain.data.teachers.base import Solution
from posttrain.stage.seeds import stable_seed
from posttrain.stage.slots import InSlot, Part

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

TREE_WORDS = "words"
"""Key of a problem's metadata under which the letters and the length of its words stand."""


class WordTreeSource(NumberedSource):
    """Asks for a word, under other numbers; solutions draw each letter by its share.

    The words are the leaves of a tree with a branch for each letter, and which of them are right
    is the verifier's to say. As there are few, what a policy says of all of them is computed, and
    not sampled: a diagnostic such as `posterior` does so.

    Source: own, for claims that are decided by enumerating all answers.
    """

    kind: Literal["word_tree"] = "word_tree"
    name: str = "word_tree"
    """Name of the source."""
    prompt: str = "say {number}"
    """What is asked; {number} tells problems apart, and says nothing."""
    letters: str = Field(default="abcdefgh", pattern=r"^[a-z]{2,26}$")
    """What words are made of."""
    length: int = Field(default=3, ge=1)
    """Letters of a word."""
    shares: tuple[Annotated[float, Field(gt=0.0)], ...] = ()
    """How often each letter stands in the solutions; equally often unless it is given."""
    verifier: Annotated[Part, InSlot("verifier")] = Field(
        default={"kind": "regex", "pattern": r"^([a-h])[a-h]\1$"}, validate_default=True
    )
    """Which words are right: those of three letters from a to h that end as they begin, and of
    other trees what is said here."""

    @model_validator(mode="after")
    def _few_words_of_different_letters(self) -> Self:
        if len({*self.letters}) < len(self.letters):
            raise ValueError(f"letters has one twice: {self.letters}")
        if len(self.letters) ** self.length > 4096:
            raise ValueError(
                f"{len(self.letters)} letters make {len(self.letters) ** self.length} words of"
                f" {self.length}; set letters or length lower, for 4096 words at most"
            )
        tree = {"letters", "length"} & self.model_fields_set
        if tree and "verifier" not in self.model_fields_set:
            raise ValueError(f"{' and '.join(sorted(tree))} make another tree; set verifier too")
        if self.shares and len(self.shares) != len(self.letters):
            raise ValueError(f"there are {len(self.shares)} shares for {len(self.letters)} letters")
        return self

    def posed(self, prompt: str) -> "Problem":
        """Ask for a word; see `NumberedSource.posed`."""
        from posttrain.data.schemas import Problem

        words = {TREE_WORDS: {"letters": self.letters, "length": self.length}}
        # What words are made of, as a person reads it: the verifier goes by its own.
        answer = " ".join(self.letters)
        return Problem(self.name, prompt, answer, 1, "", json.dumps(words))

    def solved(self, problem: "Problem", seed: int) -> Solution:
        """Draw each letter by its share; see `NumberedSource.solved`."""
        draw = Random(stable_seed(seed, self.name, problem.id))
        shares = self.shares or (1.0,) * len(self.letters)
        drawn = draw.choices(self.letters, weights=shares, k=self.length)
        return Solution(problem, "".join(drawn), "word_tree")
