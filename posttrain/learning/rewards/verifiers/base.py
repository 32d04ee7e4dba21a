"""What every verifier is: a part that scores answers to problems."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from posttrain.learning.rewards.score import Score, final_answer
from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class Verifier(Part):
    """Scores answers; derive from it, and define `score`, or `verify` to see many at once.

    A problem names its verifier by kind. The fields of a verifier are parameters: a recipe sets
    them at the source of the problems, and they stand in the metadata of every such problem, under
    the verifier's kind.
    """

    NEEDS: ClassVar[frozenset[str]] = frozenset()
    """`endpoint` for a verifier that asks a model; it then stays in the stage's own process, where
    the key, the cache of replies and the bound on concurrent requests are. `sandbox` for one that
    runs what a model wrote."""

    REFERENCE: ClassVar[bool] = True
    """False for one that does without a problem's answer, which may then be empty."""

    def score(self, text: str, problem: "Problem") -> Score:
        """Score one answer.

        Args:
            text: What the model wrote after the prompt.
            problem: The problem, with its reference answer.

        Returns:
            A value in [0, 1], 1 for an answer that is accepted in full, and a stable code.

        """
        raise NotImplementedError

    def verify(self, texts: Sequence[str], problems: Sequence["Problem"]) -> list[Score]:
        """Score many answers; define it where asking about all at once is quicker.

        Args:
            texts: The answers.
            problems: ``problems[i]`` is what ``texts[i]`` answers.

        Returns:
            One score per answer, in their order.

        """
        return [self.score(text, problem) for text, problem in zip(texts, problems, strict=True)]

    def stated(self, text: str) -> str | None:
        """Return what a text states as its answer, for votes among texts; None where it does not.

        Args:
            text: What the model wrote after the prompt.

        """
        return final_answer(text)

    def reads(self, problem: "Problem") -> bool:  # noqa: ARG002 - for those that compare
        """Tell whether a problem's answer is one that it can compare with.

        Args:
            problem: With its reference answer.

        Returns:
            False where no answer could ever count as right.

        """
        return True

    def place(self) -> str:
        """Say in words where an answer is looked for; empty where all of a text counts."""
        return ""

    @classmethod
    def label(cls, parameters: Mapping[str, Any]) -> str:  # noqa: ARG003 - for those that have one
        """Return a word that tells these parameters from others in the lineage: a model's name."""
        return ""

    def parameters(self) -> Mapping[str, Any]:
        """Return all fields but the kind: what the metadata of its problems holds."""
        return self.model_dump(exclude={"kind"})

    @classmethod
    def has_parameters(cls) -> bool:
        """Return True where there is a field beside the kind."""
        return len(cls.model_fields) > 1


class ByPlay(Verifier):
    """Goes by what an environment paid, where the answer is an episode; a text alone tells nothing.

    It stands beside the base and is no switch in it, whose code is in the digest of every verifier.
    """

    REFERENCE: ClassVar[bool] = False

    def score(self, text: str, problem: "Problem") -> Score:  # noqa: ARG002 - no text can tell
        """Leave it unjudged: nobody played; see `Verifier.score`."""
        return Score(None, "not_played")
