"""Two clones, a bare repository and a remote: what one made the other has, and nothing is run."""

import gzip
import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from posttrain.operations.exchange import push
from posttrain.pipeline.execution.lockstate import NAME, committed
from posttrain.pipeline.execution.session import open_session
from posttrain.provenance.ledger import open_ledger
from tests.conftest import Toy, made_toy
from tests.quick import first_now


def git(folder, *words):
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b.c"}
    identity |= {key.replace("AUTHOR", "COMMITTER"): value for key, value in identity.items()}
    subprocess.run(
        ["git", *words], cwd=folder, check=True, capture_output=True, env={**os.environ, **identity}
    )


def with_remote(toy, folder):
    """Give the toy project a default remote."""
    (toy.root / ".dvc/config").write_text(
        "[core]\n    analytics = false\n    remote = team\n"
        f"['remote \"team\"']\n    url = {folder}\n"
    )


def save(toy, words="made"):
    git(toy.root, "add", "-A")
    git(toy.root, "commit", "-q", "-m", words)


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """A project that has run, was pushed to a remote, and lies in a bare repository."""
    place = tmp_path_factory.mktemp("team")
    with made_toy(place / "origin") as toy:
        with_remote(toy, place / "remote")
        toy.run()
        save(toy)
        with open_session(toy.root) as session:
            sent = push(toy.root, toy.root, session.ledger)
        assert (sent.remote, sent.artifacts, sent.new) == ("team", 3, 3)
        git(place, "clone", "-q", "--bare", str(toy.root), str(place / "bare.git"))
        yield Team(place, toy)


@dataclass
class Team:
    """Where the bare repository and the remote lie, and the project that was cloned."""

    place: Path
    origin: Toy

    def clone(self, folder, *words, source=None):
        """Clone the bare repository into a folder, with a remote of its own: a copy."""
        source = source or self.place / "bare.git"
        git(self.place, "clone", "-q", *words, str(source), str(folder / "clone"))
        shutil.copytree(self.place / "remote", folder / "remote")
        made = replace(self.origin, root=folder / "clone")
        (made.root / ".dvc/config.local").write_text(
            f"['remote \"team\"']\n    url = {folder / 'remote'}\n"
        )
        return made


@pytest.fixture
def clone(team, tmp_path):
    """A clone of the project on a machine that never ran it."""
    return team.clone(tmp_path)


def actions(toy):
    return {name: (each.action, each.reasons) for name, each in toy.plan().items()}


RESTORE = ("restore", ("made before, kept in the remote",))


@pytest.mark.parametrize("shallow", [False, True])
def test_a_clone_has_nothing_to_run(team, tmp_path, shallow):
    words = ("--depth", "1", "--no-local") if shallow else ()
    clone = team.clone(tmp_path, *words)
    assert actions(clone) == dict.fromkeys(["first", "second", "third"], RESTORE)
    assert not (clone.root / "data").exists()
    ran = clone.run()
    assert {each.status for each in ran.values()} == {"restored"}
    made = Path("data/third/result.json")
    assert (clone.root / made).read_bytes() == (team.origin.root / made).read_bytes()
    assert {action for action, _ in actions(clone).values()} == {"cached"}
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=clone.root, capture_output=True, text=True, check=True
    )
    assert status.stdout == ""


def test_a_detached_head_and_a_worktree_give_the_same_answer(clone, tmp_path):
    git(clone.root, "checkout", "-q", "--detach")
    assert actions(clone) == dict.fromkeys(["first", "second", "third"], RESTORE)
    git(clone.root, "worktree", "add", "-q", str(tmp_path / "tree"), "HEAD")
    tree = replace(clone, root=tmp_path / "tree")
    shutil.copy(clone.root / ".dvc/config.local", tree.root / ".dvc/config.local")
    assert actions(tree) == dict.fromkeys(["first", "second", "third"], RESTORE)


def test_what_differs_is_named(clone):
    clone.recipe("second: {amount: 5}\n")
    found = actions(clone)
    assert found["first"] == RESTORE
    assert found["second"] == ("run", ("parameter amount changed from 1 to 5",))
    assert found["third"][0] == "pending"


def test_a_clone_that_made_something_gives_it_back(clone, tmp_path):
    """The other side pulls records and bytes of what it never ran."""
    git(tmp_path, "clone", "-q", str(clone.root), str(tmp_path / "other"))
    other = replace(clone, root=tmp_path / "other")
    shutil.copy(clone.root / ".dvc/config.local", other.root / ".dvc/config.local")
    stood = {each.stage: each.id for each in committed(clone.root)}
    clone.recipe("third: {amount: 7}\n")
    ran = clone.run()
    assert [each.status for each in ran.values()] == ["restored", "restored", "succeeded"]
    now = {each.stage: each.id for each in committed(clone.root)}
    assert {name for name in now if now[name] != stood[name]} == {"third"}
    save(clone, "third")
    done = clone.cli("push")
    assert done.returncode == 0, done.stderr
    assert "3 artifacts are in the remote 'team', 1 of them new" in done.stdout
    git(other.root, "pull", "-q", str(clone.root), "HEAD")
    pulled = other.cli("pull")
    assert pulled.returncode == 0, pulled.stderr
    assert "3 of 3 stages fetched: first, second, third." in pulled.stdout
    with open_ledger(other.root / ".posttrain/ledger.db") as ledger:
        # Of the other clone, beside those that posttrain.lock names.
        assert ledger.stage_run(ran["first"].id).status == "restored"
    assert {action for action, _ in actions(other).values()} == {"cached"}


@pytest.mark.slow
def test_another_remote_than_the_default_one_is_named(clone, tmp_path):
    clone.run()
    shutil.rmtree(tmp_path / "remote")
    local = clone.root / ".dvc/config.local"
    backup = f"['remote \"backup\"']\n    url = {tmp_path / 'backup'}\n"
    local.write_text(local.read_text() + backup)
    done = clone.cli("push", "-r", "backup")
    assert "3 artifacts are in the remote 'backup', 3 of them new" in done.stdout, done.stderr
    assert not (tmp_path / "remote").exists()
    git(tmp_path, "clone", "-q", str(clone.root), str(tmp_path / "other"))
    other = replace(clone, root=tmp_path / "other")
    shutil.copy(local, other.root / ".dvc/config.local")
    assert actions(other)["first"][0] == "run"
    pulled = other.cli("pull", "--remote", "backup")
    assert "3 of 3 stages fetched: first, second, third." in pulled.stdout, pulled.stderr
    assert {action for action, _ in actions(other).values()} == {"cached"}
    wrong = other.cli("pull", "-r", "bakup")
    assert wrong.returncode == 2
    assert "DVC knows no remote 'bakup'; did you mean 'backup'" in wrong.stderr


def test_without_bytes_it_runs_and_says_why(clone, tmp_path):
    shutil.rmtree(tmp_path / "remote")
    gone = ("its outputs are gone from the workspace and the cache",)
    assert actions(clone)["first"] == ("run", gone)
    assert {each.status for each in clone.run().values()} == {"succeeded"}


def test_a_lost_object_of_the_remote_is_made_again(clone, tmp_path):
    (lost,) = (each.outputs[0].md5 for each in committed(clone.root) if each.stage == "second")
    (tmp_path / "remote/files/md5" / lost[:2] / lost[2:]).unlink()
    assert [each.status for each in clone.run().values()] == ["restored", "succeeded", "restored"]


@pytest.mark.slow
def test_pull_takes_the_stages_that_are_ready_and_names_the_others(clone):
    clone.recipe("third: {amount: 7}\n")
    pulled = clone.cli("pull")
    assert pulled.returncode == 0, pulled.stderr
    assert "2 of 3 stages fetched: first, second." in pulled.stdout
    assert "Not up to date here: third; see posttrain plan." in pulled.stdout
    assert not (clone.root / "data/third").exists()


def test_a_merge_conflict_and_a_damaged_lock_are_one_sentence(clone):
    lock = clone.root / NAME
    text = lock.read_text()
    lock.write_text("<<<<<<< ours\n" + text)
    refused = clone.cli("plan")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: ")
    assert "posttrain.lock holds a merge conflict; take one side" in refused.stderr
    lock.write_text(text[: len(text) // 2])
    refused = clone.cli("plan")
    assert refused.returncode == 2
    assert "posttrain.lock line" in refused.stderr
    assert "is damaged" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.slow
def test_without_a_remote_or_a_run_there_is_nothing_to_send(toy):
    refused = toy.cli("push")
    assert refused.returncode == 2
    assert refused.stderr.endswith("has no posttrain.lock; run the recipe first: posttrain run\n")
    toy.run()
    refused = toy.cli("push")
    assert refused.returncode == 2
    assert "has no default DVC remote; set one with dvc remote add" in refused.stderr
    assert toy.cli("pull").returncode == 2


def test_a_damaged_ledger_of_the_remote_changes_nothing(clone, tmp_path):
    (ledger,) = (tmp_path / "remote/posttrain/ledgers").iterdir()
    ledger.write_bytes(ledger.read_bytes()[:-20])
    refused = clone.cli("pull")
    assert refused.returncode == 2
    assert "of the remote 'team' is damaged" in refused.stderr
    assert not (clone.root / "data").exists()


@pytest.mark.slow
def test_a_ledger_that_cannot_be_read_is_not_replaced_by_a_push(clone, tmp_path):
    """A newer posttrain pushed it from a copy of this folder: what it says is not lost."""
    assert clone.cli("push").returncode == 0
    own = clone.root / ".posttrain/ledger-name"
    pushed = tmp_path / f"remote/posttrain/ledgers/{own.read_text().strip()}.jsonl.gz"
    newer = gzip.compress(b'{"kind": "ledger", "format": 99}\n')
    pushed.chmod(0o644)
    pushed.write_bytes(newer)
    refused = clone.cli("push")
    assert refused.returncode == 2
    assert "format 99" in refused.stderr
    assert pushed.read_bytes() == newer


@pytest.mark.slow
def test_two_copies_of_a_folder_lose_no_record_of_each_other(clone, tmp_path):
    """`cp -r` copies the name under which the ledger lies in the remote, too."""
    assert clone.cli("push").returncode == 0
    shutil.copytree(clone.root, tmp_path / "copy")
    copy = replace(clone, root=tmp_path / "copy")
    clone.recipe("third: {amount: 7}\n")
    copy.recipe("third: {amount: 8}\n")
    ids = [toy.run()["third"].id for toy in (clone, copy)]
    for toy in (clone, copy):
        pushed = toy.cli("push")
        assert pushed.returncode == 0, pushed.stderr
    pulled = clone.cli("pull")
    assert pulled.returncode == 0, pulled.stderr
    third = replace(clone, root=tmp_path / "third")
    git(tmp_path, "clone", "-q", str(clone.root), "third")
    shutil.copy(clone.root / ".dvc/config.local", third.root / ".dvc/config.local")
    assert third.cli("pull").returncode == 0
    for toy in (clone, third):
        with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
            assert [ledger.stage_run(each) is not None for each in ids] == [True, True]


@pytest.mark.parametrize("url", first_now(["gs://bucket/project", "ssh://nobody.invalid/project"]))
def test_a_client_of_the_remote_that_is_not_installed_is_one_sentence(clone, url):
    """Extras of DVC; where one is installed it is the machine or bucket that does not answer."""
    (clone.root / ".dvc/config.local").write_text(f"['remote \"team\"']\n    url = {url}\n")
    for verb in ("push", "pull"):
        refused = clone.cli(verb)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
        assert refused.stderr.startswith("error: the DVC remote")
    assert actions(clone)["first"][0] == "run"
    assert "and the DVC remote cannot be read: " in actions(clone)["first"][1][0]
