"""What every extractor is: a part that finds the answer in what a model wrote."""

from posttrain.learning.rewards.score import reference_answer
from posttrain.stage.slots import Part


class Extractor(Part):
    """Finds the answer in a text; derive from it and define `extract`.

    A verifier that compares takes one as its `answer`. Where it finds nothing, the verifier says
    "no_answer".
    """

    def extract(self, text: str) -> str | None:
        """Find the answer.

        Args:
            text: What the model wrote after the prompt.

        Returns:
            The answer, trimmed; None where the text states none.

        """
        raise NotImplementedError

    def reference(self, answer: str) -> str:
        """Find what to compare with in a problem's answer, which may be a worked solution.

        Args:
            answer: As the problem states it.

        Returns:
            What stands behind GSM8K's marker in it, else all of it, trimmed.

        """
        return reference_answer(answer)

    def place(self) -> str:
        """Say in words where an answer is looked for, for notes and errors."""
        return f"by {self.kind}"
