"""What a run without an evaluation says first: held-out loss, order of pairs, margin of answers."""

import json
from dataclasses import replace

import pytest

from posttrain.provenance.ledger.records import ArtifactRecord, StageRun
from posttrain.views.report import StageFacts, summary_table, write_report
from posttrain.views.report.headline import headlines
from tests.views.report.test_page import rendered

RECORD = StageRun(
    id="1", run_id="r", stage="sft", task="t", key="k", status="succeeded", started=0.0, ended=1.0
)
LOSS = {"sft/heldout_nll": 1.25, "sft/heldout_nll_before": 2.5, "sft/num_heldout_rows": 12.0}


def graded(tmp_path, name, report):
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(report))
    output = ArtifactRecord(
        digest="d", role="report", path=f"data/{name}/report.json", type="report", size=1
    )
    stage = StageFacts(replace(RECORD, stage=name, outputs=(output,)), 1.0)
    return [stage], {f"{name}.report": path}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "sft_2: held-out loss 1.250 nats a token, on 12 rows; 2.500 before training."),
        (
            {"sft/heldout_nll_low": 1.0, "sft/heldout_nll_high": 1.5},
            "sft_2: held-out loss 1.250 nats a token (95% interval 1.000 to 1.500), on 12 rows;"
            " 2.500 before training.",
        ),
    ],
)
def test_supervised_training_says_its_heldout_loss(more, said):
    stage = StageFacts(replace(RECORD, stage="sft_2", metrics={**LOSS, **more}), 1.0)
    assert headlines([stage], {}) == [said]


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (
            {"accuracy": 0.75, "accuracy_low": 0.5, "accuracy_high": 1.0, "num_heldout_pairs": 8},
            "75.0% of 8 held-out pairs in the right order (95% interval 50.0% to 100.0%).",
        ),
        (
            {"accuracy": 0.75, "accuracy_low": 0.5, "accuracy_high": 1.0, "num_pairs": 1},
            "75.0% of 1 held-out pair in the right order (95% interval 50.0% to 100.0%).",
        ),
        (
            {"margin": -0.125, "num_heldout_pairs": 3, "num_compared_pairs": 0},
            "good held-out answers gained -0.125 over bad ones (beta times the log-ratio,"
            " 3 pairs of such answers).",
        ),
    ],
)
def test_pairs_and_answers_say_how_they_were_told_apart(tmp_path, report, said):
    assert headlines(*graded(tmp_path, "reward", report)) == [f"reward: {said}"]


def test_a_report_of_something_else_says_nothing(tmp_path):
    assert headlines(*graded(tmp_path, "curate", {"num_rows": 3})) == []


def test_page_and_table_begin_and_end_with_it(tmp_path, workspace):
    stage = StageFacts(replace(RECORD, metrics=LOSS), 1.0)
    assert "held-out loss 1.250" in " ".join(rendered(summary_table([stage], {})).split())
    page = tmp_path / "page.html"
    write_report(page, recipe_name="mine", stages=[stage], artifacts={}, facts={})
    text = page.read_text()
    assert text.index("held-out loss 1.250 nats a token") < text.index("<nav>")
    evaluated = [*workspace.stages, stage]
    write_report(page, recipe_name="m", stages=evaluated, artifacts=workspace.artifacts, facts={})
    assert "held-out loss" not in page.read_text()
