"""Rows as other tools expect them: nulls, structs and plain types in parquet, sessions as JSONL."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa  # type: ignore[import-untyped]

HARNESS = "posttrain"
"""Who wrote a session, as its first line says."""

_ABSENT_WHERE_EMPTY = (
    *("context", "origin_file", "peers", "rationale", "verifier", "turns", "facts", "entropies"),
    *("token_rewards", "advantages", "reason"),
)
"""Columns in which an empty text or list says that there is nothing."""
_OF_A_FILE = "origin_line"
_JSON = ("metadata", "context")
_ROW_GROUP_ROWS = 65_536
_ZSTD_LEVEL = 3


def for_others(frame: "pl.DataFrame") -> "pl.DataFrame":
    """Say what is absent by nulls, and lay JSON texts out as structs.

    A field of JSON that is a number in one row and a text in another is text in all.

    Args:
        frame: Of one of the schemas, or some of its columns.

    Returns:
        The same rows.

    """
    import polars as pl

    absent = [name for name in _ABSENT_WHERE_EMPTY if name in frame.columns]
    frame = frame.with_columns(
        pl.when(
            pl.col(name).list.len() > 0
            if isinstance(frame.schema[name], pl.List)
            else pl.col(name) != ""
        ).then(pl.col(name))
        for name in absent
    )
    if _OF_A_FILE in frame.columns:
        frame = frame.with_columns(pl.when(pl.col(_OF_A_FILE) > 0).then(pl.col(_OF_A_FILE)))
    for name in _JSON:
        if name in frame.columns:
            frame = frame.with_columns(_decoded(frame[name]))
    return frame


def write_for_others(frame: "pl.DataFrame", path: Path) -> None:
    """Write a parquet file with a page index, in chunks that are cut by content.

    Of a new version a hub that keeps files by chunks is sent what changed.

    Args:
        frame: As `for_others` gives it.
        path: The file.

    """
    from pyarrow import parquet

    table = frame.to_arrow()
    parquet.write_table(
        table.cast(_plain(table.schema)),
        path,
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        row_group_size=_ROW_GROUP_ROWS,
        write_page_index=True,
        use_content_defined_chunking=True,
    )


def sessions(
    rows: "pl.DataFrame", decode: Callable[[Sequence[int]], str]
) -> Iterator[tuple[str, str]]:
    """Lay rollouts or completions out as session traces, as Hugging Face's Hub shows them.

    What a rollout read has the role `user`, and what it drew `assistant`: its tokens do not say
    who spoke in between.

    Source: huggingface/hub-docs at 9d148464, docs/hub/session-traces-format.md.

    Args:
        rows: Of a ROLLOUTS table, or of one of COMPLETIONS.
        decode: Makes text of tokens.

    Yields:
        Id and JSON lines of a session for each row.

    """
    for row in rows.iter_rows(named=True):
        said = _of_tokens(row, decode) if "spans" in row else _of_messages(row)
        known = {name: row.get(name) for name in ("step", "reward", "score")}
        facts = {name: value for name, value in known.items() if value is not None}
        head = {"type": "session", "harness": HARNESS, "id": row["id"], **facts}
        lines = [head, *({"type": "message", "message": message} for message in said)]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        yield row["id"], text


def _of_tokens(
    row: Mapping[str, Any], decode: Callable[[Sequence[int]], str]
) -> Iterator[dict[str, str]]:
    for span in row["spans"]:
        if span["end"] > span["begin"]:
            role = "assistant" if span["drawn"] else "user"
            content = decode(row["token_ids"][span["begin"] : span["end"]])
            yield {"role": role, "content": content}


def _of_messages(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    from posttrain.data.contexts import PromptContext

    yield from PromptContext.read(row["context"]).messages(row["prompt"])
    yield {"role": "assistant", "content": row["text"]}


def _decoded(column: "pl.Series") -> "pl.Series":
    """JSON texts as structs; nulls where no row has a field."""
    import polars as pl

    try:
        found = column.str.json_decode(infer_schema_length=None)
    except pl.exceptions.PolarsError:
        return column
    fields = found.dtype.fields if isinstance(found.dtype, pl.Struct) else []
    return found if fields else pl.Series(column.name, [None] * len(column), pl.String)


def _plain(schema: "pa.Schema") -> "pa.Schema":
    """The types that data sets have elsewhere: lists and texts that are not called large."""
    import pyarrow as pa

    return pa.schema([pa.field(each.name, _plain_type(each.type)) for each in schema])


def _plain_type(kind: "pa.DataType") -> "pa.DataType":
    import pyarrow as pa

    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _plain_type(each.type)) for each in kind])
    return pa.string() if pa.types.is_large_string(kind) else kind
