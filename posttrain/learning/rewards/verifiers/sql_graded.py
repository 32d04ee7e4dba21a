"""A SQL query that gives other rows earns something by its structure."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.backends.sandbox.program import Program
from posttrain.learning.rewards.score import WRONG_ANSWER, Score
from posttrain.learning.rewards.verifiers.sandboxed import ERROR
from posttrain.learning.rewards.verifiers.sql import SqlVerifier
from posttrain.learning.rewards.verifiers.sql_clauses import clause_agreement
from posttrain.stage.errors import UserError
from posttrain.stage.extras import extra_line

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class SqlGradedVerifier(SqlVerifier):
    """As `sql`; a query with other rows, or that fails, earns up to `most` by its clauses.

    The structure is read by sqlglot. What takes too long earns nothing; codes are those of `sql`.
    """

    SOURCE = "partial component matching by F1, as in Spider, arXiv:1809.08887, section 5"
    PACKAGES: ClassVar[frozenset[str]] = frozenset({"sqlglot"})

    kind: Literal["sql_graded"] = "sql_graded"  # type: ignore[assignment]
    most: float = Field(default=0.5, gt=0.0, lt=1.0)
    """What a query earns whose clauses are all those of the reference, and whose rows are not."""

    def programs(self, answer: str, problem: "Problem") -> list[Program]:
        """Make the program that runs both queries; see `SandboxVerifier.programs`."""
        if find_spec("sqlglot") is None:
            raise UserError(
                "the verifier 'sql_graded' needs sqlglot, which is not installed; run:"
                f" {extra_line('sql')}, or take the verifier 'sql'"
            )
        return super().programs(answer, problem)

    def verify(self, texts: Sequence[str], problems: Sequence["Problem"]) -> list[Score]:
        """Run all queries, and grade those that are not right; see `Verifier.verify`."""
        scores = super().verify(texts, problems)
        return [self._graded(*each) for each in zip(scores, texts, problems, strict=True)]

    def _graded(self, score: Score, text: str, problem: "Problem") -> Score:
        answer = self.answer.extract(text)
        if answer is None or score.reason not in (ERROR.reason, WRONG_ANSWER.reason):
            return score
        return Score(self.most * clause_agreement(answer, self.expected(problem)), score.reason)
