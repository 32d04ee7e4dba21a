"""A data set as written for the hub: read by datasets, by the hub's card class, by mlcroissant."""

import json
import subprocess
import sys

import polars as pl
import pytest
from huggingface_hub import DatasetCard

from posttrain.provenance.ledger import ArtifactRecord, StageRun
from posttrain.publishing.hub.data_sets import PushedTable, export_data_set
from posttrain.publishing.hub.upload import push_folder
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind

COMMIT = "c" * 40


@pytest.fixture
def tables(tmp_path):
    """Three problems and two held-out ones, with the stage run that made them."""
    rows = {"problems": ["1 + 1 =", "2 + 2 =", "3 + 3 ="], "heldout": ["4 + 4 =", "5 + 5 ="]}
    made = []
    for role, prompts in rows.items():
        path = tmp_path / f"{role}.parquet"
        frame = pl.DataFrame({"prompt": prompts, "difficulty": [0.5] * len(prompts)})
        frame.with_columns(pl.Series("level", range(len(prompts)))).write_parquet(path)
        made.append(PushedTable("synthesize", role, path, role))
    outputs = tuple(
        ArtifactRecord(role, ArtifactKind.PROBLEMS, f"data/{role}.parquet", role, 1)
        for role in rows
    )
    source = {"kind": "huggingface", "name": "openai/gsm8k", "revision": COMMIT, "use": "train"}
    run = StageRun(
        "1", "run", "synthesize", "tasks.synthesize", "k" * 64, "succeeded", 0.0, 1.0,
        components={"params": {"sources": json.dumps([source])}},
        outputs=outputs,
        inputs=(ArtifactRecord("files.own", ArtifactKind.SOURCE, "/home/me/own.jsonl", "f", 1),),
    )  # fmt: skip
    return made, [run]


@pytest.fixture
def folder(tables, tmp_path):
    made, stages = tables
    target = tmp_path / "sums"
    target.mkdir()
    export_data_set(
        made, target, name="sums", stages=stages, license={"license": "mit"}, language=["en"]
    )
    return target


def test_the_card_says_configurations_splits_size_and_sources(folder):
    head = DatasetCard.load(folder / "README.md", ignore_metadata_errors=False).data
    assert head.to_dict()["configs"] == [
        {
            "config_name": "problems",
            "default": True,
            "data_files": [
                {"split": "train", "path": "problems/train-00000-of-00001.parquet"},
                {"split": "test", "path": "problems/test-00000-of-00001.parquet"},
            ],
        }
    ]
    assert head.size_categories == ["n<1K"]
    assert head.source_datasets == ["openai/gsm8k"]
    assert (head.license, head.language, head.tags) == ("mit", ["en"], ["posttrain"])
    # A folder of this machine is nobody's business.
    assert "/home/me" not in (folder / "README.md").read_text()


def test_tables_that_would_be_one_split_are_refused(tables, tmp_path):
    made, stages = tables
    again = PushedTable("curate", "problems", made[0].path, "other")
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match=r"curate.problems and synthesize.problems have the same"):
        export_data_set([*made, again], tmp_path / "out", name="x", stages=stages, license={})


@pytest.mark.slow
def test_datasets_reads_both_splits_from_the_card(folder, tmp_path):
    import datasets

    read = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert {split: table["prompt"] for split, table in read.items()} == {
        "train": ["1 + 1 =", "2 + 2 =", "3 + 3 ="],
        "test": ["4 + 4 =", "5 + 5 ="],
    }


PROGRAM = """
import sys, mlcroissant
data = mlcroissant.Dataset(sys.argv[1])
for issues in (data.metadata.ctx.issues.errors,):
    assert not issues, issues
for name in ("problems_train", "problems_test"):
    print([row[f"{name}/prompt"].decode() for row in data.records(name)])
"""


@pytest.mark.slow
def test_mlcroissant_reads_the_rows_and_prov_says_what_they_are_derived_from(folder):
    pytest.importorskip("mlcroissant")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder / "croissant.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "['1 + 1 =', '2 + 2 =', '3 + 3 =']",
        "['4 + 4 =', '5 + 5 =']",
    ]
    described = json.loads((folder / "croissant.json").read_text())
    assert described["conformsTo"] == "http://mlcommons.org/croissant/1.1"
    assert described["prov:wasDerivedFrom"] == [
        {"@id": "https://huggingface.co/datasets/openai/gsm8k", "sc:version": COMMIT}
    ]
    (activity,) = described["prov:wasGeneratedBy"]
    assert [each["@id"] for each in activity["prov:used"]] == ["urn:sha256:f"]
    assert [each["name"] for each in activity["prov:generated"]] == ["problems", "heldout"]


@pytest.mark.slow
def test_what_is_pushed_is_a_private_data_set_that_is_read_back(folder, hub, api, tmp_path):
    push_folder(folder, "me/sums", message="rows", kind="dataset", hub=api)
    assert hub.dataset("me/sums").private
    place = tmp_path / "there"
    for name, body in hub.dataset("me/sums").files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(body)
    import datasets

    read = datasets.load_dataset(str(place), split="test", cache_dir=str(tmp_path / "read"))
    assert read["prompt"] == ["4 + 4 =", "5 + 5 ="]
