"""Tables that are open, and the rows of them that an address asks for."""

from urllib.parse import urlencode

import polars as pl
from fastapi import Request

from posttrain.cli.page.project import Project
from posttrain.cli.page.windows import ListedTable, Memory, RowQuestion, list_table
from posttrain.provenance.ledger import ArtifactRecord

_tables: Memory[ListedTable] = Memory(8)
_numbers: Memory[pl.Series] = Memory(32)


def question_in(request: Request) -> RowQuestion:
    """Read which rows an address asks for.

    Args:
        request: With `where`, `search`, `is` (column:value, any number), `sort`, `descending`.

    Returns:
        The question; all rows as they stand where nothing is said.

    """
    given = request.query_params
    chosen = (each.partition(":")[::2] for each in given.getlist("is") if each)
    return RowQuestion(
        where=given.get("where", "").strip(),
        search=given.get("search", "").strip(),
        chosen=tuple(chosen),
        sort=given.get("sort", ""),
        descending=given.get("descending") == "true",
    )


def asked_again(question: RowQuestion) -> str:
    """Write a question as the end of an address.

    >>> asked_again(RowQuestion(search="so", sort="step", descending=True))
    '?search=so&sort=step&descending=true'
    >>> asked_again(RowQuestion())
    ''

    Args:
        question: Of `question_in`.

    Returns:
        Nothing where nothing is asked.

    """
    said = [
        ("where", question.where),
        ("search", question.search),
        *(("is", f"{name}:{value}") for name, value in question.chosen),
        ("sort", question.sort),
        ("descending", "true" if question.sort and question.descending else ""),
    ]
    kept = [(name, value) for name, value in said if value]
    return f"?{urlencode(kept)}" if kept else ""


def open_listed(project: Project, digest: str) -> tuple[ArtifactRecord, ListedTable]:
    """Open a table with what is listed of it, kept for the next question.

    Args:
        project: That has it.
        digest: Its digest, or the beginning.

    Returns:
        Its record, and its rows.

    """
    record, table = project.table(digest)
    return record, _tables.get(table.file, lambda: list_table(table, record.type))


def rows_asked(listed: ListedTable, question: RowQuestion) -> pl.Series:
    """Find the rows that are asked for, kept for the next window on them.

    Args:
        listed: The table.
        question: Which rows, in which order.

    Returns:
        Their numbers.

    Raises:
        UserError: The expression is no SQL over the table, or there is no such column.

    """
    return _numbers.get((listed.table.file, question), lambda: listed.numbers(question))


def neighbors(numbers: pl.Series, number: int) -> tuple[int | None, int | None]:
    """Find the rows before and after one, in the order that was asked for.

    >>> neighbors(pl.Series([4, 1, 3]), 1)
    (4, 3)

    Args:
        numbers: Of the rows that were asked for.
        number: Of the one.

    Returns:
        Their numbers; None at an end, and twice for a row that is not among them.

    """
    place = numbers.index_of(number)
    if place is None:
        return None, None
    before = numbers[place - 1] if place else None
    after = numbers[place + 1] if place + 1 < len(numbers) else None
    return before, after
