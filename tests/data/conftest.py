"""Files of problems, and how reading them ends."""

import json

import pytest

# Sources name their verifiers by the slot, which is there once its registry is imported.
import posttrain.learning.rewards.verifiers.registry  # noqa: F401
from posttrain.data.sources.base import SourceRequest
from posttrain.data.sources.columns import ProblemRow
from posttrain.data.sources.registry import SOURCES
from posttrain.stage.errors import UserError


@pytest.fixture
def read(tmp_path):
    """Read a whole table with columns that keep their names unless a test maps them."""

    def rows(kind, place, **options):
        local = not isinstance(place, str)
        fields = {"path" if local else "hub": str(place), "use": "train", **options}
        request = SourceRequest(
            seed=0,
            num_problems=1,
            num_heldout=1,
            heldout_fraction=0.5,
            scratch=tmp_path / "scratch",
            path=place if local else None,
        )
        found = SOURCES.parse({"kind": kind, "name": "own", **fields}).read(request)
        texts = {id(solution.problem): solution.text for solution in found.solutions}
        return [
            ProblemRow(each.prompt, each.answer, texts.get(id(each), ""), each.difficulty)
            for each in found.train
        ]

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
