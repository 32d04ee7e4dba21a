"""The benchmark of the page: its tables are those of the figures; its rollouts are real ones."""

import json

import polars as pl

from benchmarks.ui import __main__ as bench
from posttrain.data.schemas import ROLLOUTS


def test_the_page_is_written_from_the_kept_figures(tmp_path, monkeypatch):
    page = tmp_path / "README.md"
    page.write_text(bench.PAGE.read_text())
    kept = json.loads(bench.FIGURES.read_text())
    monkeypatch.setattr(bench, "PAGE", page)
    monkeypatch.setattr(bench, "FIGURES", tmp_path / "figures.json")
    bench.write(kept)
    assert page.read_text() == (bench.HERE / "README.md").read_text()
    # What the page promises: the first rows within a second, and most frames in time.
    assert kept["rows"] == 100_000
    assert kept["new"] < 1000
    assert sorted(kept["scrolls"]["slowly"]["gaps"])[120] < 17


def test_the_rollouts_that_are_looked_at_are_such_as_a_stage_writes(tmp_path):
    bench.make(tmp_path, 24)
    rows = pl.read_parquet(tmp_path / "data/rl/rollouts.parquet")
    assert rows.schema == ROLLOUTS
    # Three groups of eight; a span that was read and one that was drawn, with a number for each.
    assert rows["problem_id"].n_unique() == 3
    drawn = rows["token_ids"].list.len() - bench.PROMPT
    for column in ("logprobs", "advantages"):
        assert (rows[column].list.len() == drawn).all()
    assert rows["spans"].list.last().struct.field("end").to_list() == (drawn + 40).to_list()
