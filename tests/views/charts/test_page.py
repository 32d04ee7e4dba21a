"""What a page needs for its charts: Vega, kept once for a machine."""

import vl_convert

from posttrain.views.charts.page import vega


def test_vega_is_put_together_once_on_a_machine(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda: made.append(1) or "window.v = 1;")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert [vega(), vega()] == ["window.v = 1;"] * 2
    assert made == [1]
    (kept,) = (tmp_path / "posttrain").iterdir()
    assert kept.name.startswith("vega-")


def test_a_home_that_cannot_be_written_to_is_no_reason_to_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda: "window.v = 1;")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert vega() == "window.v = 1;"
