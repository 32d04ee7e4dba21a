"""What verifiers share that find the answer in a text, and compare it with the reference."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from posttrain.learning.rewards.extractors.base import Extractor
from posttrain.learning.rewards.extractors.marker import MarkerAnswer
from posttrain.learning.rewards.extractors.registry import EXTRACTORS
from posttrain.learning.rewards.score import NO_ANSWER, Score
from posttrain.learning.rewards.verifiers.base import Verifier
from posttrain.stage.errors import UserError
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class ComparingVerifier(Verifier):
    """Finds the answer in a text, and compares it; derive from it and define `compare`."""

    answer: Annotated[Extractor, InSlot(EXTRACTORS)] = MarkerAnswer()
    """Where the answer stands: a kind's name, or a mapping with the kind and its settings."""

    def compare(self, answer: str, problem: "Problem") -> Score:
        """Score the answer that was found.

        Args:
            answer: What the text states.
            problem: With the reference answer: see `expected`.

        Returns:
            A value in [0, 1], 1 for an answer that is accepted in full, and a stable code.

        """
        raise NotImplementedError

    def score(self, text: str, problem: "Problem") -> Score:
        """Find the answer, and compare it; see `Verifier.score`."""
        answer = self.answer.extract(text)
        return NO_ANSWER if answer is None else self.compare(answer, problem)

    def expected(self, problem: "Problem") -> str:
        """Return the reference answer, also where it stands in a worked solution."""
        return self.answer.reference(problem.answer)

    def stated(self, text: str) -> str | None:
        """Find the answer; see `Verifier.stated`."""
        return self.answer.extract(text)

    def reads(self, problem: "Problem") -> bool:
        """Compare the problem's answer with itself; see `Verifier.reads`."""
        if not self.REFERENCE:
            return True
        try:
            return self.compare(self.expected(problem), problem).correct is not False
        except UserError:
            return False

    def place(self) -> str:
        """Say where the extractor looks."""
        return self.answer.place()

    def parameters(self) -> Mapping[str, Any]:
        """Return all fields but the kind, and but the extractor where it is the default one."""
        given = dict(super().parameters())
        if self.answer == type(self).model_fields["answer"].default:
            del given["answer"]
        return given
