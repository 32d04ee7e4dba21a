"""Problems from a parquet file."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from posttrain.data.sources.base import SourceRequest
from posttrain.data.sources.table import FileSource
from posttrain.stage.errors import UserError, first_line


class ParquetSource(FileSource):
    """Reads a parquet file.

    Source: own reader; Apache Parquet.
    """

    kind: Literal["parquet"] = "parquet"

    def records(self, request: SourceRequest) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Read row by row; see `TableSource.records`."""
        yield from enumerate(parquet_rows(self.file(request)), start=1)


def parquet_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """Read by pyarrow: polars, which reads our own tables, aborts on some damaged files.

    Args:
        path: The file.

    Yields:
        Its rows.

    Raises:
        UserError: It cannot be read as parquet.

    """
    import pyarrow  # type: ignore[import-untyped]
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(use_threads=False):
                yield from batch.to_pylist()
    except (OSError, ValueError, OverflowError, pyarrow.ArrowException) as error:
        raise UserError(f"{path}: not a readable parquet file: {first_line(error)}") from None
