"""Diagnostics of curves: proxy against gold, and what others published."""

import polars as pl
import pytest

from posttrain.data.schemas import CURVE
from posttrain.data.tables import write_table
from posttrain.learning.rollouts.diagnostics.base import Seen
from posttrain.learning.rollouts.diagnostics.gold_curve import GoldCurve
from posttrain.learning.rollouts.diagnostics.published_curves import PublishedCurves
from posttrain.stage.errors import UserError


@pytest.fixture
def curve(tmp_path):
    def write(name, **metrics):
        rows = [
            {"step": step, "metric": f"rl/{metric.replace('__', '/')}", "value": value}
            for metric, values in metrics.items()
            for step, value in enumerate(values, start=1)
        ]
        path = tmp_path / f"{name}.parquet"
        write_table(pl.DataFrame(rows, schema=CURVE), path, CURVE)
        return path

    return write


def test_gold_that_falls_while_the_proxy_rises_is_told(curve):
    path = curve(
        "ours",
        reward__proxy=[1.0, 2.0, 3.0, 4.0, 5.0],
        reward__gold=[0.2, 0.4, 0.6, 0.5, 0.3],
        kl=[0.0, 0.1, 0.4, 0.9, 1.6],
        length=[10.0] * 5,
    )
    plain = curve("plain", reward=[1.0])
    found = GoldCurve(window=0.1).diagnose(Seen(curves={"ours": path, "plain": plain}))
    assert found.figures.keys() == {"ours"}
    # Nats of an answer: 0, 1, 4, 9, 16, of which the roots are 0 to 4.
    assert found.figures["ours"] == pytest.approx(
        {
            "proxy_gain": 4.0,
            "gold_gain": 0.1,
            "gold_peak": 0.6,
            "gold_lost": 0.3,
            "peak_at": 2.0,
            "divergence": 4.0,
            "mismatch": 3.9,
            "agreement": 1.0,
            "agreement_after": -1.0,
        }
    )
    proxy, gold = found.lines
    assert list(proxy.x) == pytest.approx([0, 1, 2, 3, 4])
    assert list(gold.y) == [0.2, 0.4, 0.6, 0.5, 0.3]
    # Over two steps each: 0.3, 0.5, 0.55, 0.4.
    wider = GoldCurve(window=0.4).diagnose(Seen(curves={"ours": path}))
    assert wider.figures["ours"]["gold_lost"] == pytest.approx(0.15)
    assert wider.figures["ours"]["peak_at"] == pytest.approx(2.5)


def test_a_step_in_which_no_answer_ended_has_no_length_and_counts_for_nothing(curve):
    metrics = {"reward__proxy": [1, 2, 9], "reward__gold": [0.2, 0.4, 0.9], "kl": [0.0, 0.1, 9.0]}
    cut = curve("cut", **metrics, length=[10, 10])
    whole = curve(
        "whole", **{name: values[:2] for name, values in metrics.items()}, length=[10, 10]
    )
    found = GoldCurve(window=0.1).diagnose(Seen(curves={"cut": cut, "whole": whole})).figures
    assert found["cut"] == found["whole"]


def test_a_run_without_a_divergence_says_what_is_missing(curve):
    path = curve("ours", reward__proxy=[1.0], reward__gold=[1.0], length=[1.0])
    with pytest.raises(UserError, match="the curve of ours has no rl/kl"):
        GoldCurve().diagnose(Seen(curves={"ours": path}))


PUBLISHED = "run,seed,step,metric,value\n" + "".join(
    f"theirs,{seed},{step},rl/reward,{seed * step / 10}\n" for seed in (1, 2, 3) for step in (1, 2)
)


def test_own_runs_are_held_against_the_published_ones(curve, tmp_path, monkeypatch):
    """At step 2 theirs are 0.2, 0.4, 0.6: mean 0.4, deviation 0.2, t of two degrees 4.3027."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.csv").write_text(PUBLISHED)
    part = PublishedCurves(path="theirs.csv", run="theirs")
    assert part.read_files() == ("theirs.csv",)
    curves = {"ours": curve("ours", reward=[0.0, 0.5, 0.9]), "far": curve("far", reward=[0, 2.0])}
    found = part.diagnose(Seen(curves=curves))
    ours = found.figures["ours"]
    assert (ours["published"], ours["own"], ours["at"]) == (pytest.approx(0.4), 0.5, 2)
    assert ours["off"] == pytest.approx(0.1)
    assert ours["published_high"] == pytest.approx(0.4 + 4.30265 * 0.2 / 3**0.5, abs=1e-4)
    assert (ours["within"], found.figures["far"]["within"]) == (1, 0)
    assert [line.name for line in found.lines] == ["theirs (published)", "ours", "far"]
    # Over both steps theirs are 0.15, 0.3 and 0.45, and one's own 0.25.
    over_two = PublishedCurves(path="theirs.csv", run="theirs", window=2).diagnose(
        Seen(curves={"ours": curves["ours"]})
    )
    assert over_two.figures["ours"]["off"] == pytest.approx(-0.05)
    with pytest.raises(UserError, match="no run 'their' has rl/reward; did you mean 'theirs'"):
        PublishedCurves(path="theirs.csv", run="their").diagnose(Seen(curves=curves))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("run,step,metric,value\n", "there is no column 'seed'"),
        ("run,seed,step,metric,value\na,1,x,rl/reward,1\n", r"theirs\.csv:2: step and value are"),
        ("run,seed,step,metric,value\na,1,1,rl/reward,nan\n", "the value is not finite"),
    ],
)
def test_a_file_that_is_no_table_of_points_is_refused(text, told, curve, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.csv").write_text(text)
    with pytest.raises(UserError, match=told):
        PublishedCurves(path="theirs.csv", run="a").diagnose(
            Seen(curves={"ours": curve("ours", reward=[1.0])})
        )
