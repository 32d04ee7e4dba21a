"""A release is made again from nothing but itself, and what differs is said."""

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.ledger import ArtifactRecord, StageRun
from posttrain.publishing.release.code import code_archive
from posttrain.publishing.release.contents import ArchiveContents, FolderContents, MemoryContents
from posttrain.publishing.release.rebuild import Wish, compare_bytes, compare_figures, rebuild
from posttrain.publishing.release.verify import read_claims
from posttrain.stage.errors import UserError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def claims(released):
    found, findings = read_claims(FolderContents(released.second), released.key)
    assert findings == []
    return found


@pytest.mark.core
@pytest.mark.slow
def test_the_toy_release_rebuilds_to_equal_digests(released, claims, tmp_path):
    archive = tmp_path / "release.tar"
    archive.write_bytes((released.second.parent / "mini-v1.1.0.tar").read_bytes())
    done = rebuild(ArchiveContents(archive), claims, tmp_path / "empty")
    assert done.level == "L0"
    assert [each for each in done.comparisons if not each.agrees] == []
    compared = {each.stage for each in done.comparisons}
    assert compared == {"synthesize", "pretrain", "sft", "evaluate"}
    assert "data/sft/policy" in {each.what for each in done.comparisons}
    assert done.environment == ()
    # The code that ran was the release's, not this tree's.
    assert (tmp_path / "empty/posttrain/learning/maths/__init__.py").is_file()


@pytest.mark.core
@pytest.mark.slow
def test_a_folder_that_is_not_empty_is_refused(released, claims, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        rebuild(FolderContents(released.second), claims, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def names_of(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return tar.getnames()


def test_the_code_of_a_checkout_is_all_three_packages(tmp_path):
    names = names_of(code_archive(Workspace(ROOT, ROOT)))
    assert len(names) == len(set(names))
    for name in (
        "posttrain/stage/spec.py",
        "tasks/sft/stage.py",
        "flows/post_training.py",
    ):
        assert name in names
    assert not [name for name in names if name.endswith(".pyc") or name.startswith("tests/")]
    # A project that has stages of its own beside the installed ones.
    (tmp_path / "tasks/own").mkdir(parents=True)
    for path in ("tasks/__init__.py", "tasks/own/__init__.py"):
        (tmp_path / path).write_text("# mine\n")
    names = names_of(code_archive(Workspace(tmp_path, tmp_path)))
    assert {
        "posttrain/stage/spec.py",
        "tasks/own/__init__.py",
        "tasks/sft/stage.py",
    } <= {*names}
    assert len(names) == len(set(names))


@pytest.mark.core
@pytest.mark.slow
def test_a_release_without_the_library_is_not_rebuilt_with_what_is_installed(
    released, claims, tmp_path
):
    contents = FolderContents(released.second)
    files = {name: contents.read(name) for name in contents.names()}
    empty = io.BytesIO()
    tarfile.open(fileobj=empty, mode="w").close()
    files["release/code.tar"] = empty.getvalue()
    with pytest.raises(UserError, match="does not hold the library"):
        rebuild(MemoryContents(files), claims, tmp_path / "x")


def stage_run(stage, **changes):
    base = StageRun("id", "run", stage, "task", "key", "succeeded", 0.0, 1.0)
    return replace(base, **changes)


@pytest.mark.core
@pytest.mark.slow
def test_other_bytes_are_named_by_stage(claims):
    comparisons = list(compare_bytes(claims, {}, binding=True))
    assert all(not each.agrees for each in comparisons)
    assert {each.rebuilt for each in comparisons} == {"nothing"}


def evaluated(pass_at_1):
    """An evaluation of the policy that gave this figure."""
    policy = ArtifactRecord("policies.sft", "checkpoint", "data/sft/policy", "d", 1)
    report = ArtifactRecord("report", "report", "data/evaluate/report.json", "r", 1)
    metrics = {"evaluate/sft/pass_at_1": pass_at_1}
    run = stage_run("evaluate", inputs=(policy,), outputs=(report,), metrics=metrics)
    return {"evaluate": run}


def stored(value, low, high):
    metrics = {"evaluation": {"pass_at_1": {"value": value, "low": low, "high": high}}}
    return MemoryContents({"release/metrics.json": json.dumps(metrics).encode()})


@pytest.mark.core
@pytest.mark.slow
@pytest.mark.parametrize(
    ("rebuilt", "agrees"), [(0.50, True), (0.57, True), (0.58, False), (0.43, True), (0.42, False)]
)
def test_one_seed_must_lie_in_the_interval_of_a_difference(claims, rebuilt, agrees):
    # Released 0.50 in 0.45 .. 0.55: another run may be off by 0.05 sqrt(2) = 0.0707.
    seeds = {0: evaluated(rebuilt)}
    (compared,) = compare_figures(claims, seeds, stored(0.5, 0.45, 0.55), within=0.1)
    assert compared.agrees is agrees
    assert compared.binding


@pytest.mark.core
@pytest.mark.slow
@pytest.mark.parametrize(
    ("stated", "within", "agrees"),
    [(0.549, 0.03, True), (0.551, 0.03, False), (0.451, 0.03, True), (0.5, 0.02, False)],
)
def test_several_seeds_are_a_prediction(claims, stated, within, agrees):
    """0.49, 0.50, 0.51: mean 0.5, s = 0.01, t = 4.3027 with 2 degrees of freedom.

    One more lies within t s sqrt(4/3) = 0.0497 of the mean, and the mean is known to within
    t s / sqrt(3) = 0.0248.
    """
    seeds = {seed: evaluated(0.49 + 0.01 * seed) for seed in range(3)}
    (compared,) = compare_figures(claims, seeds, stored(stated, 0.4, 0.6), within=within)
    assert compared.agrees is agrees
    assert ("undecided" in compared.rebuilt) == (within < 0.0248)


@pytest.mark.core
@pytest.mark.slow
def test_figures_that_are_not_there_are_no_agreement(claims):
    with pytest.raises(UserError, match="no evaluation of the policy"):
        compare_figures(claims, {0: {}}, stored(0.5, 0.4, 0.6), within=0.1)


@pytest.mark.core
@pytest.mark.slow
def test_another_model_of_gpu_is_refused_at_l1_and_rollouts_are_asked_for_at_l2(
    released, claims, tmp_path
):
    names = FolderContents(released.second)
    files = {name: names.read(name) for name in names.names()}
    lock = json.loads(files["release/environment.json"])
    files["release/environment.json"] = json.dumps({**lock, "accelerator": "H900"}).encode()
    with pytest.raises(UserError, match="made with 'H900', and here is 'none'"):
        rebuild(MemoryContents(files), claims, tmp_path / "x", Wish(level="L1"))
    with pytest.raises(UserError, match=r"carries no rollouts to replay \(it declares L0\)"):
        rebuild(names, claims, tmp_path / "x", Wish(level="L2"))
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_a_file_from_outside_is_licensed_carried_and_rebuilt_from(released, tmp_path):
    project = released.project.copy(tmp_path / "copy")
    lines = [
        json.dumps({"prompt": f"Add {number} and {number}.", "answer": str(2 * number)})
        for number in range(200)
    ]
    (project.root / "own").mkdir()
    (project.root / "own/sums.jsonl").write_text("\n".join(lines) + "\n")
    project.edit(
        "  num_problems: 60",
        "  - {kind: jsonl, name: sums, path: own/sums.jsonl}\n  num_problems: 60",
    )
    project.run()
    project.evaluate_again(1)
    project.commit("own data")
    with pytest.raises(UserError, match=r"license of 'sums' \(file sums.jsonl"):
        project.create("own")
    project.edit("  license: MIT", "  license: MIT\n  licenses: {sums: CC0-1.0}")
    project.commit("license")
    made = project.create("own")
    stored = made.folder / "release/inputs/own/sums.jsonl"
    assert stored.read_bytes() == (project.root / "own/sums.jsonl").read_bytes()
    found, _ = read_claims(FolderContents(made.folder), released.key)
    done = rebuild(ArchiveContents(made.archive), found, tmp_path / "empty")
    assert done.agrees
