import hashlib
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from posttrain.data.reviews import REVIEWS
from posttrain.data.schemas import CURVE, DROPPED, PROBLEMS, SCHEMAS, Problem, problems_table
from posttrain.data.soft_targets import soft_targets_schema
from posttrain.data.tables import _write_parquet, check_table, read_table, rows_digest, write_table
from posttrain.stage.errors import UserError
from tasks.import_curves import tracked_runs

_PROBLEM = Problem("sums", "2 + 3 =", "5", difficulty=2, verifier="exact")


def _problems(count: int) -> pl.DataFrame:
    return problems_table(
        [Problem("sums", f"{i} + 1 =", str(i + 1), i % 5, "exact") for i in range(count)]
    )


def test_what_is_written_is_read_back(tmp_path):
    frame = _problems(7)
    write_table(frame, tmp_path / "problems.parquet", PROBLEMS)
    assert read_table(tmp_path / "problems.parquet", PROBLEMS).equals(frame)
    assert check_table(tmp_path / "problems.parquet", PROBLEMS) == 7


def test_only_the_asked_columns_are_read(tmp_path):
    write_table(_problems(2), tmp_path / "p.parquet", PROBLEMS)
    read = read_table(tmp_path / "p.parquet", PROBLEMS, columns=["answer"])
    assert read.to_dict(as_series=False) == {"answer": ["1", "2"]}


def test_columns_come_out_in_the_order_of_the_schema(tmp_path):
    write_table(_problems(2).select(reversed(PROBLEMS)), tmp_path / "p.parquet", PROBLEMS)
    assert list(pl.read_parquet_schema(tmp_path / "p.parquet")) == list(PROBLEMS)


def test_chunks_of_a_frame_do_not_show_in_the_bytes(tmp_path):
    whole = _problems(1000)
    pieces = pl.concat([whole[i : i + 10] for i in range(0, 1000, 10)], rechunk=False)
    assert pieces.n_chunks() == 100
    write_table(whole, tmp_path / "whole.parquet", PROBLEMS)
    write_table(pieces, tmp_path / "pieces.parquet", PROBLEMS)
    assert (tmp_path / "whole.parquet").read_bytes() == (tmp_path / "pieces.parquet").read_bytes()


_WRITE_BIG = """
import sys, polars as pl
from pathlib import Path
from posttrain.data.tables import write_table
from posttrain.data.schemas import CURVE
n = 150_000
frame = pl.DataFrame({"step": range(n), "metric": [f"m{i % 7}" for i in range(n)],
                      "value": [i / 3 for i in range(n)]}, schema=CURVE)
write_table(frame, Path(sys.argv[1]), CURVE)
"""


@pytest.mark.slow
def test_bytes_do_not_depend_on_the_number_of_threads(tmp_path):
    digests = set()
    for threads in ("1", "3"):
        path = tmp_path / f"{threads}.parquet"
        env = os.environ | {"POLARS_MAX_THREADS": threads}
        subprocess.run([sys.executable, "-c", _WRITE_BIG, str(path)], check=True, env=env)
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_the_layout_of_the_file_is_pinned(tmp_path):
    rows = 70_000
    curve = pl.DataFrame({"step": range(rows)}).with_columns(
        pl.lit("loss").alias("metric"), pl.col("step").cast(pl.Float64).alias("value")
    )
    write_table(curve, tmp_path / "c.parquet", CURVE)
    layout = pq.ParquetFile(tmp_path / "c.parquet").metadata
    groups = [layout.row_group(i) for i in range(layout.num_row_groups)]
    assert [group.num_rows for group in groups] == [65_536, rows - 65_536]
    assert {group.column(i).compression for group in groups for i in range(3)} == {"ZSTD"}
    assert groups[1].column(0).statistics.min == 65_536


def _made_up(dtype):
    """A value of a type, such that nothing is empty."""
    if isinstance(dtype, pl.List):
        return [_made_up(dtype.inner)]
    if isinstance(dtype, pl.Struct):
        return {field.name: _made_up(field.dtype) for field in dtype.fields}
    if dtype == pl.String:
        return "x"
    if dtype == pl.Boolean:
        return True
    return 2 if dtype.is_integer() else 0.5


OTHERS = {"reviews": REVIEWS, "soft_targets": soft_targets_schema(), "tracked_runs": tracked_runs()}


@pytest.mark.parametrize("kind", [*SCHEMAS, *OTHERS])
def test_a_table_is_read_by_datasets_as_it_lies_there(tmp_path, kind):
    import datasets

    schema = (SCHEMAS | OTHERS)[kind]
    row = {name: _made_up(dtype) for name, dtype in schema.items()}
    path = tmp_path / "t.parquet"
    write_table(pl.DataFrame([row], schema=schema), path, schema)
    read = datasets.load_dataset(
        "parquet", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert read.to_list() == [row]
    footer = pq.ParquetFile(path).metadata
    columns = [footer.row_group(0).column(number) for number in range(footer.num_columns)]
    assert all(each.has_column_index and each.has_offset_index for each in columns)


@pytest.mark.parametrize(
    ("kind", "stated"),
    [("problems", ("problems", "3")), ("verdicts", ("verdicts", "1")), ("reviews", (None, None))],
)
def test_a_footer_names_the_schema_and_nothing_of_when_and_where(tmp_path, kind, stated):
    schema = (SCHEMAS | OTHERS)[kind]
    write_table(pl.DataFrame(schema=schema), tmp_path / "t.parquet", schema)
    footer = pl.read_parquet_metadata(tmp_path / "t.parquet")
    assert (footer.get("posttrain.schema"), footer.get("posttrain.format")) == stated
    assert set(footer) <= {"ARROW:schema", "posttrain.schema", "posttrain.format"}


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda f: f.drop("answer"), "p.parquet: there is no column 'answer'"),
        (
            lambda f: f.rename({"answer": "answers"}),
            "p.parquet: there is no column 'answer'; did you mean 'answers'?",
        ),
        (
            lambda f: f.with_columns(pl.col("difficulty").cast(pl.Int64)),
            "p.parquet: column 'difficulty' holds Int64, but Int32 is needed",
        ),
        (
            lambda f: f.with_columns(pl.lit("x").alias("answr")),
            "column 'answr' does not belong to the table; did you mean 'answer'?",
        ),
        (
            lambda f: f.with_columns(pl.lit(None, dtype=pl.String).alias("id")),
            "p.parquet: column 'id' holds 3 nulls",
        ),
    ],
)
def test_a_frame_that_breaks_its_schema_is_not_written(tmp_path, spoil, sentence):
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")):
        write_table(spoil(_problems(3)), tmp_path / "p.parquet", PROBLEMS)
    assert list(tmp_path.iterdir()) == []


def test_a_table_of_another_schema_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "p.parquet"
    _problems(3).rename({"prompt": "promt"}).write_parquet(path)
    sentence = f"{path}: there is no column 'prompt'; did you mean 'promt'\\?"
    with pytest.raises(UserError, match=sentence):
        read_table(path, PROBLEMS)
    with pytest.raises(UserError, match=sentence):
        check_table(path, PROBLEMS)


def test_a_missing_and_a_cut_file_are_told_apart(tmp_path):
    with pytest.raises(UserError, match="there is no such file"):
        check_table(tmp_path / "p.parquet", PROBLEMS)
    write_table(_problems(100), tmp_path / "p.parquet", PROBLEMS)
    whole = (tmp_path / "p.parquet").read_bytes()
    (tmp_path / "p.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="not a parquet file, or it is cut short"):
        check_table(tmp_path / "p.parquet", PROBLEMS)


def test_no_rows_are_fine_only_for_dropped_rows_and_curves(tmp_path):
    path = tmp_path / "t.parquet"
    write_table(_problems(0), path, PROBLEMS)
    with pytest.raises(UserError, match="the table has no rows"):
        check_table(path, PROBLEMS)
    write_table(pl.DataFrame(schema=CURVE), path, CURVE)
    assert check_table(path, CURVE) == 0
    write_table(pl.DataFrame(schema=DROPPED), path, DROPPED)
    assert check_table(path, DROPPED) == 0


def test_dropped_rows_keep_the_columns_of_the_filtered_table(tmp_path):
    dropped = _problems(2).with_columns(pl.lit("too_long").alias("reason"))
    write_table(dropped, tmp_path / "d.parquet", DROPPED)
    read = read_table(tmp_path / "d.parquet", DROPPED)
    assert read.columns[:3] == ["id", "parents", "reason"]
    assert read["answer"].to_list() == ["1", "2"]


def test_a_failed_write_leaves_the_old_table_and_no_scraps(tmp_path, monkeypatch):
    path = tmp_path / "p.parquet"
    write_table(_problems(1), path, PROBLEMS)
    before = path.read_bytes()

    def fail(_frame, partial, **_):
        partial.write_bytes(b"half")
        raise OSError("the disk went away")

    monkeypatch.setattr("posttrain.data.tables._write_parquet", fail)
    with pytest.raises(OSError, match="went away"):
        write_table(_problems(2), path, PROBLEMS)
    assert [p.name for p in tmp_path.iterdir()] == ["p.parquet"]
    assert path.read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_sentence():
    with pytest.raises(UserError, match="no space left"):
        _write_parquet(_problems(1), Path("/dev/full"))


def test_rows_have_the_digest_that_their_file_had_before_footers_named_schemas(tmp_path):
    """The options are those of the file's writer; the footer of format 1 said nothing."""
    curve = pl.DataFrame(
        {"step": [1, 2], "metric": ["loss", "loss"], "value": [0.5, 0.25]}, schema=CURVE
    )
    write_table(curve, tmp_path / "now.parquet", CURVE)
    curve.write_parquet(
        tmp_path / "before.parquet", compression="zstd", compression_level=3, statistics=True,
        row_group_size=65_536, data_page_size=1 << 20,
    )  # fmt: skip
    before = (tmp_path / "before.parquet").read_bytes()
    assert (tmp_path / "now.parquet").read_bytes() != before
    assert rows_digest(tmp_path / "now.parquet") == hashlib.sha256(before).hexdigest()
    write_table(curve.with_columns(value=pl.col("value") + 1), tmp_path / "other.parquet", CURVE)
    assert rows_digest(tmp_path / "other.parquet") != hashlib.sha256(before).hexdigest()
