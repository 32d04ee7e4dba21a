"""The head of a real release's card, read back by the hub's own library, and what refuses one."""

import json

import pytest
from huggingface_hub import ModelCard

from posttrain.publishing.release.verify import verify_path
from posttrain.stage.errors import UserError

pytestmark = pytest.mark.slow


@pytest.fixture
def project(released, tmp_path):
    return released.project.copy(tmp_path / "copy")


def test_the_hubs_library_reads_the_head_with_counts_dates_and_intervals(released):
    """`validate` itself asks the hub, which is not here: its parser and its classes are."""
    card = ModelCard.load(released.second / "README.md", ignore_metadata_errors=False)
    head = card.data
    assert (head.library_name, head.pipeline_tag, head.license) == (
        "transformers",
        "text-generation",
        "mit",
    )
    assert head.tags == ["posttrain", "pretrain", "sft", "generated_from_trainer"]
    # Trained from nothing on generated problems: no base, and no data set of the hub.
    assert head.base_model is None
    assert head.datasets is None
    metrics = json.loads((released.second / "release/metrics.json").read_text())["evaluation"]
    data = json.loads((released.second / "release/data.json").read_text())["artifacts"]
    (problems,) = {each["digest"] for each in data if each["role"] == "heldout"}
    for result in head.eval_results:
        figures = metrics[result.metric_type.replace("pass@", "pass_at_")]
        assert result.metric_value == pytest.approx(figures["value"], abs=1e-6)
        said = result.metric_args
        assert said["low"] == pytest.approx(figures["low"], abs=1e-6)
        assert said["high"] == pytest.approx(figures["high"], abs=1e-6)
        # 24 problems, evaluated with two seeds, 2 samples each (conftest's recipe).
        assert (said["problems"], said["seeds"], said["num_samples"]) == (24, 2, 2)
        assert result.dataset_args == {"sha256": problems}
        assert len(said["date"].split("-")) == 3
    assert [each.metric_type for each in head.eval_results] == ["pass@1", "pass@2", "pass@4"]
    assert "model_name" not in card.text


def test_the_card_says_what_training_took_by_stage(released):
    card = (released.second / "README.md").read_text()
    table = card.partition("## Training took\n")[2].partition("## Inputs")[0]
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in table.splitlines()
        if line.startswith("| ")
    ]
    assert rows[0] == ["stage", "hours", "CPU hours", "GPU hours", "kWh"]
    taken = {row[0]: row[1:] for row in rows[1:]}
    assert {"synthesize", "pretrain", "sft", "evaluate"} <= taken.keys()
    assert float(taken["sft"][0]) > 0
    assert float(taken["sft"][2]) == 0


def test_a_license_of_its_own_needs_a_link_before_anything_is_signed(project):
    project.edit("license: MIT", "license: Own Research License")
    project.commit()
    with pytest.raises(UserError, match=r"release.license: 'Own Research License' is none of"):
        project.create("mini@v1.2.0")
    assert "mini/v1.2.0" not in project.git("tag")
    project.edit(
        "license: Own Research License",
        "license: Own Research License\n  license_link: https://example.org/license\n"
        "  language: [en]\n  base_model: org/base-1B",
    )
    project.commit()
    made = project.create("mini@v1.2.0")
    head = ModelCard.load(made.folder / "README.md").data
    assert (head.license, head.license_name, head.license_link) == (
        "other",
        "own-research-license",
        "https://example.org/license",
    )
    assert head.language == ["en"]
    assert (head.base_model, head.base_model_relation) == (["org/base-1B"], "finetune")


def test_figures_in_the_head_that_were_altered_are_found(released, tmp_path):
    import shutil

    from posttrain.publishing.hub.results import index_findings

    card = (released.second / "README.md").read_text()
    metrics = json.loads((released.second / "release/metrics.json").read_text())["evaluation"]
    assert list(index_findings(card, metrics)) == []
    better = {name: {**each, "high": 0.5 * each["high"]} for name, each in metrics.items()}
    (finding,) = index_findings(card, better)
    assert finding.endswith("(high)")
    copy = tmp_path / "copy"
    shutil.copytree(released.second, copy)
    (copy / ".eval_results").mkdir()
    (copy / ".eval_results/of-others.yaml").write_text("- dataset: {id: a/b, task_id: c}\n")
    # On the hub others add results by pull request; they are no part of the release.
    assert verify_path(copy, released.key) == []
    (copy / "of-others.yaml").write_text("")
    assert verify_path(copy, released.key) == ["of-others.yaml: it was added; no claim is about it"]
