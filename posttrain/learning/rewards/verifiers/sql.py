"""A SQL query is right if it gives the rows of the reference query: SQLite, in the sandbox."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from posttrain.backends.sandbox import queries
from posttrain.backends.sandbox.program import Program, ProgramEnd
from posttrain.learning.rewards.extractors.base import Extractor
from posttrain.learning.rewards.extractors.code import CodeAnswer
from posttrain.learning.rewards.extractors.registry import EXTRACTORS
from posttrain.learning.rewards.score import CORRECT, WRONG_ANSWER, Score
from posttrain.learning.rewards.verifiers.sandboxed import ERROR, TIMEOUT, SandboxVerifier
from posttrain.stage.errors import UserError
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class SqlVerifier(SandboxVerifier):
    """Run the query and the reference on one database that may be read alone; compare their rows.

    Further codes: "error" (the query fails, or would change something), "timeout".
    """

    SOURCE = "execution accuracy as in Spider, arXiv:1809.08887, and BIRD, arXiv:2305.03111"

    kind: Literal["sql"] = "sql"
    answer: Annotated[Extractor, InSlot(EXTRACTORS)] = CodeAnswer(
        languages=("sql", "sqlite"), fenced=False
    )
    """Where the query stands."""
    database: str = ""
    """SQL that makes the tables and fills them; the row says it, mostly."""
    ordered: bool | None = None
    """Whether the order of rows counts; null: where the reference has an `order by` of its own."""

    def programs(self, answer: str, problem: "Problem") -> list[Program]:
        """Make the program that runs both queries; see `SandboxVerifier.programs`."""
        if not self.database:
            raise UserError(
                f"problem {problem.id} of '{problem.source}' has no database; name the column that"
                " holds the SQL of its tables in `parameters` of its source: {database: ...}"
            )
        order = {
            "database": self.database,
            "reference": self.expected(problem),
            "query": answer,
            "ordered": self.ordered,
        }
        source = Path(queries.__file__).read_bytes()
        stdin = json.dumps(order).encode()
        limits = self.limits()
        return [Program((sys.executable, "main.py"), {"main.py": source}, stdin, limits)]

    def judged(self, ends: Sequence[ProgramEnd], problem: "Problem") -> Score:
        """Read what the program found; see `SandboxVerifier.judged`."""
        end = ends[0]
        if not end.ok:
            return TIMEOUT if end.how in ("time", "cpu") else ERROR
        found = json.loads(end.output)
        if "reference" in found:
            raise UserError(
                f"problem {problem.id} of '{problem.source}': its own database or query fails"
                f" ({found['reference']}); correct it"
            )
        if "query" in found:
            return ERROR
        return CORRECT if found["same"] else WRONG_ANSWER
