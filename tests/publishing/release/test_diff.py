"""`posttrain diff` and `cost` of real releases: by their tags alone, with the recipe's gates."""

import json

import pytest

from tests.called import called

pytestmark = pytest.mark.slow


@pytest.fixture
def project(released, tmp_path, monkeypatch):
    """A copy of the project with two releases, as the folder that we are in."""
    copied = released.project.copy(tmp_path / "project")
    monkeypatch.chdir(copied.root)
    monkeypatch.setenv("POSTTRAIN_TRACKING", "off")
    return copied


def test_two_releases_are_compared_by_what_their_commits_hold(project, monkeypatch, capfd):
    done = called("diff", "mini@v1.0.0", "mini@v1.1.0", "--json", patch=monkeypatch, capture=capfd)
    assert done.code == 0
    told = json.loads(done.out)
    assert told["before"].startswith("release mini@v1.0.0 at ")
    assert ["sft", "parameter steps changed from 2 to 3"] in told["causes"]
    # The samples of both are in the cache, so that nothing is said to be missing.
    assert told["remarks"] == []


def test_the_workspace_against_a_release_decides_the_gates_and_the_exit_code(
    project, monkeypatch, capfd
):
    done = called("diff", "mini@v1.0.0", "--markdown", patch=monkeypatch, capture=capfd)
    assert done.code == 0
    assert "gates hold" in done.out
    assert "| works | holds |" in done.out
    project.edit("at_least: 0.0", "at_least: 0.99")
    project.edit("release:", "notify: {command: tee told.json}\nrelease:")
    failing = called("diff", "mini@v1.0.0", "--markdown", patch=monkeypatch, capture=capfd)
    assert failing.code == 1
    assert "| works | FAILS |" in failing.out
    notice = json.loads((project.root / "told.json").read_text())
    assert (notice["event"], notice["failed"]) == ("gates", ["works"])
    assert "notice given, exit code 0" in failing.err
    (project.root / "told.json").unlink()
    project.commit("stricter")
    refused = called("release", "create", "mini", "--key", str(project.keys / "release.key"),
                     patch=monkeypatch, capture=capfd)  # fmt: skip
    assert refused.code == 2
    assert "gate 'works' failed" in refused.sentence
    assert json.loads((project.root / "told.json").read_text())["failed"] == ["works"]
    assert called("diff", "mini@v1.0.0", "--no-gates", patch=monkeypatch, capture=capfd).code == 0


def test_a_release_costs_what_all_behind_it_took(project, monkeypatch, capfd):
    told = json.loads(called("cost", "mini@v1.0.0", "--json", patch=monkeypatch, capture=capfd).out)
    stages = {each["stage"]: each["behind"] for each in told["stages"]}
    assert {*stages} == {"synthesize", "pretrain", "sft", "evaluate"}
    assert told["behind"]["cpu_seconds"] == pytest.approx(
        sum(each["cpu_seconds"] for each in stages.values())
    )
    # 24 problems, two samples each of two policies, of at most twelve tokens.
    (drawn,) = (each["tokens"] for each in told["stages"] if each["stage"] == "evaluate")
    assert 24 * 2 * 2 <= drawn <= 24 * 2 * 2 * 12
