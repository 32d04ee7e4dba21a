"""Git is asked in one place, and whoever asks chooses what a failure is."""

from pathlib import Path

import pytest

import posttrain
from posttrain.provenance.git import ask_git, file_at, require_git, revision_of, run_git, said_by
from posttrain.stage.errors import UserError


@pytest.fixture
def repository(tmp_path):
    """A repository with one commit of one file."""
    require_git(tmp_path, "init", "-q", purpose="the test")
    (tmp_path / "a.txt").write_text("one\n")
    require_git(tmp_path, "add", "a.txt", purpose="the test")
    names = ("-c", "user.name=t", "-c", "user.email=t@t")
    require_git(tmp_path, *names, "commit", "-q", "-m", "first", purpose="the test")
    return tmp_path


def test_the_revision_knows_edits_of_tracked_files_alone(repository):
    first = revision_of(repository)
    assert len(first.commit) == 40
    assert not first.dirty
    (repository / "b.txt").write_text("untracked")
    assert revision_of(repository) == first
    (repository / "a.txt").write_text("two\n")
    assert revision_of(repository).dirty
    assert file_at(repository, first.commit, "a.txt") == b"one\n"
    assert file_at(repository, first.commit, "b.txt") is None


def test_a_failure_is_nothing_or_a_sentence(repository, tmp_path, monkeypatch):
    assert ask_git(repository, "rev-parse", "--verify", "-q", "nowhere") is None
    assert "nowhere" in said_by(run_git(repository, "checkout", "nowhere"))
    with pytest.raises(UserError, match=r"git checkout in .*nowhere.*; nothing was done"):
        require_git(repository, "checkout", "nowhere", purpose="nothing was done")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other"))
    assert ask_git(repository, "rev-parse", "HEAD")
    assert file_at(repository, "HEAD", "a.txt") == b"one\n"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask_git(repository, "status") is None
    assert file_at(repository, "HEAD", "a.txt") is None
    with pytest.raises(UserError, match="git is not installed"):
        run_git(repository, "status")


def test_nothing_else_starts_git():
    home = Path(posttrain.__file__).parent
    starts = [p.relative_to(home) for p in home.rglob("*.py") if '["git",' in p.read_text()]
    assert starts == [Path("provenance/git.py")]
