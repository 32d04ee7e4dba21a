"""Files of problems, and how reading them ends."""

import json

import pytest

from posttrain.data.readers import read_rows
from posttrain.stage.errors import UserError


@pytest.fixture
def read(tmp_path):
    """Read with columns that keep their names unless a test maps them."""

    def rows(kind, place, **options):
        return read_rows(kind, place, **{"columns": {}, "scratch": tmp_path / "scratch", **options})

    return rows


@pytest.fixture
def refusal(read):
    """The one sentence with which reading is refused."""

    def sentence(kind, place, **options):
        with pytest.raises(UserError) as caught:
            read(kind, place, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return sentence


@pytest.fixture
def lines(tmp_path):
    """Write a JSONL file of rows, of literal lines, or of bytes."""

    def write(*rows, name="rows.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        raw = (row if isinstance(row, str | bytes) else json.dumps(row) for row in rows)
        path.write_bytes(b"".join((r.encode() if isinstance(r, str) else r) + b"\n" for r in raw))
        return path

    return write
