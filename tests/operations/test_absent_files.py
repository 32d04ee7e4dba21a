"""A clone whose recipe names a file that only the other machine has: what is known is said."""

import shutil
from dataclasses import replace

import pytest

from posttrain.operations.exchange import push
from posttrain.pipeline.execution.session import open_session
from posttrain.publishing.release.chain import read_chain
from posttrain.stage.errors import UserError
from tests.conftest import made_toy
from tests.operations.test_clones import git, save, with_remote


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A project that ran on a file outside of it, and was pushed; the file is gone since."""
    place = tmp_path_factory.mktemp("absent")
    file = place / "outside.jsonl"
    file.write_text('{"a": 1}\n')
    with made_toy(place / "origin") as toy:
        with_remote(toy, place / "remote")
        toy.recipe(f"second: {{path: {file}}}\n")
        toy.run()
        save(toy)
        with open_session(toy.root) as session:
            push(toy.root, toy.root, session.ledger)
        file.unlink()
        yield toy


@pytest.fixture
def clone(origin, tmp_path):
    """A clone on a machine without the file, with a remote of its own: a copy."""
    git(tmp_path, "clone", "-q", str(origin.root), "clone")
    shutil.copytree(origin.root.parent / "remote", tmp_path / "remote")
    made = replace(origin, root=tmp_path / "clone")
    (made.root / ".dvc/config.local").write_text(
        f"['remote \"team\"']\n    url = {tmp_path / 'remote'}\n"
    )
    return made


def said_of(origin):
    return f"second: source 'given' is at {origin.root.parent}/outside.jsonl, and nothing is there"


@pytest.mark.slow
def test_a_stage_is_up_to_date_by_the_digest_that_was_recorded(origin, clone):
    note = f"note: {said_of(origin)}; up to date by its digest in posttrain.lock\n"
    planned = clone.cli("plan")
    assert planned.returncode == 0, planned.stderr
    assert note in planned.stdout
    assert "0 of 3 stages to run." in planned.stdout
    lock = (clone.root / "dvc.lock").read_bytes()
    ran = clone.cli("run", "--local")
    assert ran.returncode == 0, ran.stderr
    assert note in ran.stderr
    assert (clone.root / "data/third/result.json").read_text() == '{"sum": 3}'
    assert (clone.root / "dvc.lock").read_bytes() == lock
    again = clone.cli("run", "--local")
    assert again.returncode == 0, again.stderr
    assert note in again.stderr
    assert "Everything is up to date: 3 stages" in again.stderr


def test_what_changed_cannot_be_made_and_nothing_runs(origin, clone):
    """`first` could run, and does not: a run that cannot end is refused before it begins."""
    clone.recipe((origin.root / "recipe.yaml").read_text() + "first: {amount: 5}\n")
    refused = clone.cli("run", "--local")
    assert refused.returncode == 2
    assert refused.stderr == f"error: {said_of(origin)}; put it there, or correct the path\n"
    assert not (clone.root / "data").exists()
    planned = clone.cli("plan")
    assert (planned.returncode, planned.stderr) == (2, refused.stderr)
    assert [each.action for each in clone.plan().values()] == ["run", "missing", "pending"]
    clone.write("README.md", "The data is fetched by `hf download`.\n")
    assert clone.cli("plan").stderr.endswith("or correct the path; see README.md\n")


@pytest.mark.parametrize("lost", ["another path", "the bytes", "the record"])
def test_a_digest_stands_for_no_other_file_and_for_no_lost_bytes(origin, clone, tmp_path, lost):
    text = (origin.root / "recipe.yaml").read_text()
    if lost == "another path":
        clone.recipe(text.replace("outside.jsonl", "mistyped.jsonl"))
    elif lost == "the bytes":
        shutil.rmtree(tmp_path / "remote")
        # What comes before `second` is there, so that it is decided.
        shutil.copytree(origin.root / "data/first", clone.root / "data/first")
    else:
        (clone.root / "posttrain.lock").unlink()
    found = clone.plan()["second"]
    assert found.action == "missing"
    assert "and nothing is there; put it there, or correct the path" in found.reasons[0]
    assert clone.cli("run", "--local").returncode == 2


@pytest.mark.slow
def test_verbs_that_only_look_work_and_say_it(origin, clone):
    clone.recipe((origin.root / "recipe.yaml").read_text().replace("outside", "mistyped"))
    shown = clone.cli("status")
    assert shown.returncode == 0, shown.stderr
    assert "second its file is missing" in shown.stdout
    assert "mistyped.jsonl, and nothing is there" in " ".join(shown.stdout.split())
    for verb in ("lineage up second@latest", "release list", "why second", "audit", "adopt"):
        looked = clone.cli(*verb.split())
        assert looked.returncode == 0, (verb, looked.stderr)
    assert "nothing is there" in clone.cli("why", "second").stdout


def test_what_is_pulled_needs_no_file(origin, clone):
    pulled = clone.cli("pull")
    assert pulled.returncode == 0, pulled.stderr
    assert "3 of 3 stages fetched: first, second, third." in pulled.stdout


def test_a_release_is_of_files_that_were_seen(origin, clone):
    clone.run()
    with (
        open_session(clone.root) as session,
        pytest.raises(UserError, match="and nothing is there; put it there"),
    ):
        read_chain(session, released="second.result", evaluated_by="third")


def test_a_file_that_comes_back_counts_by_its_bytes(origin, clone):
    clone.run()
    file = origin.root.parent / "outside.jsonl"
    try:
        file.write_text('{"a": 1}\n')
        assert clone.plan()["second"].action == "cached"
        assert clone.plan()["second"].unseen == ()
        file.write_text('{"a": 2}\n')
        assert clone.plan()["second"].action == "run"
    finally:
        file.unlink()
