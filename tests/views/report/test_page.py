"""The page and the table: right where everything is there, and right where things are missing."""

import json
import re

import polars as pl
import pytest
from rich.console import Console

from posttrain.stage.errors import UserError
from posttrain.views.charts.chart import SCHEMA
from posttrain.views.report import ReportExtras, summary_table, write_report
from posttrain.views.report.claims import ClaimFigure, ClaimRow
from posttrain.views.report.evaluation import Share

FACTS = {"seed": "0", "command": "posttrain run --set a='<b>'"}


def page_of(workspace, tmp_path, **changes):
    path = tmp_path / "report.html"
    arguments = {
        "recipe_name": "demo",
        "stages": workspace.stages,
        "artifacts": workspace.artifacts,
        "facts": FACTS,
    }
    write_report(path, **(arguments | changes))
    return path.read_text(encoding="utf-8")


def sections(page):
    return re.findall(r'<section id="(\w+)"', page)


def words(page):
    """The text that a reader sees, with single spaces."""
    body = re.sub(r"<(style|script)>.*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_everything_has_its_place(workspace, tmp_path):
    page = page_of(workspace, tmp_path)
    assert sections(page) == [
        "results",
        "samples",
        "training",
        "reward",
        "data",
        "pipeline",
        "provenance",
    ]
    text = words(page)
    assert (
        "rl solves 80.0% of 10 held-out problems at the first try: +40.0 points over sft "
        "(95% interval +31.0 to +49.0)." in text
    )
    assert "rl 80.0% 75.0 to 85.0 +40.0 +31.0 to +49.0 90.0%" in text
    assert "Orders 90.0% of held-out pairs right (85.0% to 95.0%), of 120; AUROC 0.930" in text
    assert "4 problems; 2 (50.0% [15.0, 85.0]) are solved sometimes but not always" in text
    assert "make.dropped: 3 rows, by reason" in text
    assert "expected 5, found 6" in text
    assert "x/loss" in text
    assert "A section was left out" not in text


def test_the_page_needs_nothing_from_outside_and_runs_nothing_from_inside(workspace, tmp_path):
    page = page_of(workspace, tmp_path)
    own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    # Names of a format, and nothing that is asked of a server.
    assert set(re.findall(r"https?://[^\"'\s)]+", own)) == {SCHEMA}
    assert not re.search(r'(src|href)="(?!#)', own)
    assert "default-src 'none'" in page
    # dagre and the drawer of graphs, Vega and what draws charts, and the page's own.
    assert page.count("<script>") == 5
    assert "&lt;script&gt;alert" in page
    assert "a=&#39;&lt;b&gt;&#39;" in page


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ([], ["pipeline", "provenance"]),
        (["judge.report"], ["results", "samples", "pipeline", "provenance"]),
        (["train.curve"], ["training", "pipeline", "provenance"]),
        (["grade.report"], ["reward", "pipeline", "provenance"]),
        (["probe.rates"], ["data", "pipeline", "provenance"]),
        (["make.dropped"], ["data", "pipeline", "provenance"]),
    ],
)
def test_what_is_not_there_is_left_out(workspace, tmp_path, kept, expected):
    artifacts = {name: workspace.artifacts[name] for name in kept}
    page = page_of(workspace, tmp_path, artifacts=artifacts)
    assert sections(page) == expected
    assert "A section was left out" not in page
    for target in re.findall(r'href="#(\w+)"', page):
        assert f'id="{target}"' in page


def test_a_file_that_is_recorded_but_gone_is_left_out(workspace, tmp_path):
    workspace.artifacts["train.curve"].unlink()
    assert "training" not in sections(page_of(workspace, tmp_path))


@pytest.mark.parametrize(
    ("text", "said"),
    [("{broken", "JSONDecodeError"), ('{"policies": [{"pass_at": []}]}', "ValidationError")],
)
def test_a_report_that_cannot_be_read_costs_only_its_section(workspace, tmp_path, text, said):
    workspace.artifacts["judge.report"].write_text(text)
    page = page_of(workspace, tmp_path)
    assert "A section was left out: evaluation" in page
    assert said in page
    assert "training" in sections(page)
    assert summary_table(workspace.stages, workspace.artifacts).row_count == 5


DECIDED = {
    "metric": "pass_at_1", "is": "higher", "margin": 0.05, "better": "higher", "against": "plain",
    "ours": [0.6, 0.8], "theirs": [0.5, 0.5], "difference": 0.2, "low": 0.1, "high": 0.3,
    "outcome": "confirmed",
}  # fmt: skip


def test_what_is_claimed_of_the_methods_used_is_folded_into_the_page(workspace, tmp_path):
    figures = (ClaimFigure.read(DECIDED), ClaimFigure.read({**DECIDED, "low": None}))
    ran = {"verdict": "confirmed", "stale": True, "seeds": 2, "minutes": 1.25, "commit": "c" * 40}
    rows = [
        ClaimRow("pg", "mine", "better", "It is.", "sums", figures=figures, **ran),
        ClaimRow("pg", "mine", "later", "It <i>will</i>.", "sums", compared=("<plain>",)),
    ]
    page = page_of(workspace, tmp_path, told=ReportExtras(claimed=lambda: rows))
    assert sections(page)[-3:] == ["pipeline", "claims", "provenance"]
    (section,) = re.findall(r'<section id="claims">.*?</section>', page, re.DOTALL)
    # Folded: without `open`.
    assert "<details>" in section
    text = words(section)
    assert "What is claimed of the methods used here" in text
    assert "posttrain method claims --html claims.html" in text
    both = "(0.7 against 0.5 of plain), higher by 0.05"
    assert (
        f"pg mine better sums plain pass_at_1 +0.2 [+0.1, +0.3] {both} pass_at_1 +0.2 {both}"
        " confirmed (stale) 2 1.2"
    ) in text
    assert "pg mine later sums &lt;plain&gt; not run" in text
    assert 'href="#claims"' in page
    assert "#claims" not in page_of(workspace, tmp_path)


def test_a_methods_file_that_is_wrong_costs_only_the_claims(workspace, tmp_path):
    def refused():
        raise UserError("methods/pg/mine.yaml.says: missing")

    page = page_of(workspace, tmp_path, told=ReportExtras(claimed=refused))
    assert "A section was left out: claims: UserError: methods/pg/mine.yaml.says: missing" in page
    assert sections(page) == sections(page_of(workspace, tmp_path))


def test_nothing_at_all_is_still_a_page(workspace, tmp_path):
    page = page_of(workspace, tmp_path, stages=[], artifacts={}, facts={})
    assert sections(page) == ["pipeline"]


def test_a_long_training_does_not_make_a_large_page(workspace, tmp_path):
    steps = 100_000
    pl.DataFrame(
        {
            "step": [*range(1, steps + 1)] * 4,
            "metric": [name for name in "abcd" for _ in range(steps)],
            "value": [0.1234567891] * (4 * steps),
        }
    ).write_parquet(workspace.artifacts["train.curve"])
    page = page_of(workspace, tmp_path)
    assert len(re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)) < 100_000


def test_equal_inputs_make_equal_pages(workspace, tmp_path):
    assert page_of(workspace, tmp_path) == page_of(workspace, tmp_path)
    assert [path.name for path in tmp_path.glob("*report.html*")] == ["report.html"]


def rendered(table):
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(table)
    return console.export_text()


def test_the_table_shows_every_policy(workspace):
    text = rendered(summary_table(workspace.stages, workspace.artifacts))
    assert "judge: 10 problems" in text
    rows = [line.split() for line in text.splitlines() if "%" in line and "[95%]" not in line]
    assert rows[0] == ["sft", "40.0%", "[35.0,", "45.0]", "50.0%", "42.0%", "48.0%", "31.2"]
    assert rows[1][:8] == ["rl", "80.0%", "[75.0,", "85.0]", "90.0%", "82.0%", "88.0%", "31.2"]
    assert rows[1][8:] == ["+40.0", "+3", "-1"]


def test_a_policy_that_began_elsewhere_than_in_the_row_above_says_over_which(workspace):
    path = workspace.artifacts["judge.report"]
    content = json.loads(path.read_text())
    content["policies"].insert(1, {**content["policies"][0], "name": "dpo"})
    path.write_text(json.dumps(content))
    text = rendered(summary_table(workspace.stages, workspace.artifacts))
    assert re.search(r"gain +over +won", text)
    assert re.search(r"rl .* \+40\.0 +sft +\+3 +-1", text)


def test_what_should_be_seen_first_stands_above_page_and_below_table(workspace, tmp_path):
    path = workspace.artifacts["judge.report"]
    content = json.loads(path.read_text())
    content["policies"][1]["warnings"] = ["rl seems to guess <at> sums"]
    path.write_text(json.dumps(content))
    page = page_of(workspace, tmp_path)
    assert page.index("rl seems to guess &lt;at&gt; sums") < page.index("<nav>")
    text = rendered(summary_table(workspace.stages, workspace.artifacts))
    assert text.rstrip().endswith("rl seems to guess <at> sums")


def test_without_an_evaluation_the_table_shows_the_stages(workspace):
    text = rendered(summary_table(workspace.stages[:2], {}))
    assert "make" in text
    assert "cached" in text
    assert "12 s" in text


@pytest.mark.parametrize(
    ("low", "high", "direction"),
    [(0.01, 0.2, "up"), (-0.2, -0.01, "down"), (-0.1, 0.1, ""), (0.0, 0.0, "")],
)
def test_a_difference_has_a_direction_where_its_interval_leaves_zero_out(low, high, direction):
    assert Share((low + high) / 2, low, high).direction == direction


def test_a_difference_without_an_interval_is_taken_at_its_word():
    assert [Share(value).direction for value in (0.1, -0.1, 0.0)] == ["up", "down", ""]
