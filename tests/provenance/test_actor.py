"""Who works in a project: what they say, whom a service works for, or what git knows."""

import subprocess

import pytest

from posttrain.provenance.actor import actor_at

SERVICES = ("GITHUB_ACTIONS", "GITLAB_CI", "CIRCLECI", "BUILDKITE", "TF_BUILD")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A repository in which nobody is known, nor in the environment."""
    named = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "EMAIL", "POSTTRAIN_ACTOR")
    for name in (*SERVICES, *named):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def known(project, name="Ada", address="ada@example.org"):
    for key, value in (("name", name), ("email", address)):
        subprocess.run(["git", "config", f"user.{key}", value], cwd=project, check=True)


def test_where_nobody_said_it_nobody_is_made_up(project):
    assert actor_at(project) is None


def test_it_is_who_git_knows(project, tmp_path_factory):
    known(project)
    assert actor_at(project) == "Ada <ada@example.org>"
    assert actor_at(tmp_path_factory.mktemp("elsewhere")) is None


def test_a_service_works_for_somebody_whatever_its_git_says(project, monkeypatch):
    known(project, "robot", "robot@example.org")
    monkeypatch.setenv("GITHUB_ACTOR", "ada")
    assert actor_at(project) == "robot <robot@example.org>"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert actor_at(project) == "ada (GitHub Actions)"
    # Who started it again comes before who pushed.
    monkeypatch.setenv("GITHUB_TRIGGERING_ACTOR", "grace")
    assert actor_at(project) == "grace (GitHub Actions)"


def test_of_a_merge_request_it_is_the_login(project, monkeypatch):
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("GITLAB_USER_EMAIL", "ada@example.org")
    assert actor_at(project) == "ada@example.org (GitLab CI)"
    monkeypatch.setenv("GITLAB_USER_LOGIN", "ada")
    assert actor_at(project) == "ada (GitLab CI)"


def test_what_is_said_comes_first_and_is_one_line(project, monkeypatch):
    known(project)
    monkeypatch.setenv("POSTTRAIN_ACTOR", " team\n\x1b[31m evals ")
    assert actor_at(project) == "team [31m evals"
    monkeypatch.setenv("POSTTRAIN_ACTOR", " ")
    assert actor_at(project) == "Ada <ada@example.org>"
