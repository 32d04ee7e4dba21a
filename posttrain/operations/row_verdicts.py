"""What judges said of an answer, in any table of verdicts that the ledger knows."""

from collections.abc import Iterable

import polars as pl

from posttrain.learning.rewards.port_tables import subject_of
from posttrain.provenance.lineage.tables import Table


def verdicts_on(
    tables: Iterable[Table], *, problem_id: str, text: str, row_id: str
) -> list[dict[str, object]]:
    """Find what was said of one answer.

    Args:
        tables: Of verdicts.
        problem_id: Of the problem that is answered.
        text: The answer.
        row_id: Of its row, which a table may name in place of the answer.

    Returns:
        Rows of VERDICTS, in the order of the tables; each verdict once.

    """
    subjects = [subject_of(problem_id, text), row_id]
    found: dict[str, dict[str, object]] = {}
    for table in tables:
        rows = table.rows().filter(pl.col("subject").is_in(subjects)).collect()
        found |= {row["id"]: row for row in rows.iter_rows(named=True)}
    return list(found.values())
