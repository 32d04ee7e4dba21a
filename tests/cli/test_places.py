"""What a run may write to, and what can be looked at where nothing can be written."""

import os
import shutil
import subprocess

import pytest

COMMITTED = (
    "recipe.yaml", "dvc.yaml", "params.yaml", "dvc.lock", "metrics.json", "report.html",
)  # fmt: skip


def mounted(folder, *options):
    """Mount something for a test, or leave the test out."""
    done = ["mount", *options, str(folder)]
    if os.getuid() != 0 or subprocess.run(done, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")


@pytest.fixture
def small_disk(toy, tmp_path_factory, monkeypatch):
    """The toy project on a file system of eight megabytes; a call fills that to its last byte."""
    folder = tmp_path_factory.mktemp("small")
    mounted(folder, "-t", "tmpfs", "-o", "size=8m", "tmpfs")
    shutil.copytree(toy.root, folder, dirs_exist_ok=True)
    toy.root = folder
    monkeypatch.chdir(folder)

    def fill():
        command = ["dd", "if=/dev/zero", f"of={folder / 'fill'}", "bs=4k"]
        assert b"No space left" in subprocess.run(command, capture_output=True, check=False).stderr

    yield fill
    os.chdir("/")
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def texts(toy):
    return {name: (toy.root / name).read_bytes() for name in COMMITTED}


def test_a_full_disk_can_be_looked_at_and_freed(toy, small_disk, posttrain):
    assert posttrain("run", "--local").code == 0
    # Nothing needs what a try made before the last one.
    for amount in (7, 9):
        assert posttrain("run", "--local", "--set", f"second.amount={amount}").code == 0
    assert posttrain("run", "--local").code == 0
    small_disk()
    assert "0 of 3 stages to run" in posttrain("plan").out
    assert "third up to date" in " ".join(posttrain("status").out.split())
    assert "second" in posttrain("why", "second").out
    found = posttrain("doctor")
    assert "damaged" not in found.out
    assert [line.split()[1] for line in found.out.splitlines() if line.startswith("broken")] == [
        "disk"
    ]
    refused = posttrain("run", "--local", "--set", "second.amount=8")
    assert refused.code == 2
    assert "No space left" in refused.sentence
    freed = posttrain("gc", "--yes", "--keep-last", "1")
    assert (freed.code, freed.err) == (0, "")
    assert "freed" in freed.out
    assert "0 of 3 stages to run" in posttrain("plan").out


def test_a_read_only_project_can_be_looked_at(toy, posttrain):
    assert posttrain("run", "--local").code == 0
    mounted(toy.root, "--bind", str(toy.root))
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(toy.root)], check=True)
        assert "0 of 3 stages to run" in posttrain("plan").out
        assert "1 to run" not in posttrain("plan", "--set", "third.amount=9").out
        assert posttrain("status").code == 0
        assert posttrain("why", "second").code == 0
        assert posttrain("lineage", "up", "data/second/result.json").code == 0
        refused = posttrain("run", "--local", "--set", "third.amount=9")
        assert (refused.code, "make the workspace writable" in refused.sentence) == (2, True)
        # Before every stage ran again for a verdict that nobody can keep.
        refused = posttrain("verify", "latest", "--level", "L0")
        assert refused.sentence.endswith("it is read-only; make its folder writable")
        assert (refused.code, "ran in" in refused.err) == (2, False)
    finally:
        os.chdir("/")
        subprocess.run(["umount", "--lazy", str(toy.root)], check=True)


def test_a_read_only_clone_that_nobody_ever_used_can_be_looked_at(toy, posttrain):
    """No ledger is there, and DVC has no folder for its locks: what is committed is said."""
    assert posttrain("run", "--local").code == 0
    for name in (".posttrain", ".dvc/tmp", ".dvc/cache", "data"):
        shutil.rmtree(toy.root / name)
    mounted(toy.root, "--bind", str(toy.root))
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(toy.root)], check=True)
        planned = posttrain("plan")
        assert planned.code == 0
        words = " ".join(planned.out.split())
        assert "its outputs are gone from the workspace and the cache, and dvc" in words
        assert "data/second/result.json" in posttrain("status").out
        assert "changed from 1 to 9" in posttrain("why", "first", "--set", "first.amount=9").out
        refused = posttrain("run", "--local")
        assert (refused.code, "make the workspace writable" in refused.sentence) == (2, True)
        assert posttrain("push").sentence.endswith("Read-only file system; make it writable")
    finally:
        os.chdir("/")
        subprocess.run(["umount", "--lazy", str(toy.root)], check=True)


@pytest.mark.slow
def test_a_try_leaves_the_committed_files_and_is_complete_beside_them(toy, posttrain):
    assert posttrain("run", "--local").code == 0
    before = texts(toy)
    tried = posttrain("run", "--local", "--set", "second.amount=7")
    assert tried.code == 0
    assert ".posttrain/tries/root/report.html" in tried.err
    assert texts(toy) == before
    beside = toy.root / ".posttrain/tries/root"
    assert "amount: 7" in (beside / "params.yaml").read_text()
    assert "second.amount: 7" in (beside / "dvc.lock").read_text()
    assert "second up to date" in " ".join(
        posttrain("status", "--set", "second.amount=7").out.split()
    )
    # DVC tells the try from what is committed, and brings that back.
    assert [line.split(":")[0] for line in dvc(toy, "status").splitlines()][:1] == ["second"]
    dvc(toy, "checkout")
    assert "up to date" in dvc(toy, "status")
    assert texts(toy) == before
    # Kept: its values in the recipe, and nothing runs.
    toy.recipe("second: {amount: 7}\n")
    assert posttrain("run", "--local").code == 0
    assert (toy.root / "dvc.lock").read_bytes() == (beside / "dvc.lock").read_bytes()


def dvc(toy, verb):
    done = subprocess.run(["dvc", verb], cwd=toy.root, capture_output=True, text=True, check=True)
    return done.stdout


def test_one_stage_alone_leaves_the_report_of_the_whole(toy, posttrain):
    assert posttrain("run", "--local").code == 0
    page = (toy.root / "report.html").read_bytes()
    toy.recipe("third: {amount: 5}\n")
    alone = posttrain("run", "--local", "--only", "third")
    assert alone.code == 0
    assert (toy.root / "report.html").read_bytes() == page
    pages = toy.root.glob(".posttrain/runs/*/report.html")
    _, own = sorted(pages, key=lambda page: page.stat().st_mtime)
    assert "third" in own.read_text()
    assert str(own.relative_to(toy.root)) in alone.err
