"""The verbs on a real project: create, list, show, diff, promote, rollback, verify, rebuild."""

import shutil
import sys

import pytest

from posttrain.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.core]


@pytest.fixture
def project(released, tmp_path):
    saved = list(sys.path)
    copy = released.project.copy(tmp_path / "copy")
    copy.commit("third")
    yield copy
    sys.path[:] = saved


@pytest.fixture
def call(project, monkeypatch, capfd):
    monkeypatch.chdir(project.root)
    monkeypatch.setenv("POSTTRAIN_TRACKING", "off")
    monkeypatch.setenv("POSTTRAIN_KEYS", str(project.keys))
    monkeypatch.setenv("COLUMNS", "250")

    def run(*arguments, code=0):
        monkeypatch.setattr("sys.argv", ["posttrain", "release", *arguments])
        capfd.readouterr()
        found = 0
        try:
            main()
        except SystemExit as stopped:
            found = stopped.code
        said = capfd.readouterr()
        assert found == code, said
        return said.out + said.err

    return run


def test_from_creation_to_rollback(call, project):
    said = call("create", "mini", "--environment", "staging")
    assert "mini@v1.2.0: " in said
    assert "mini#staging#1: mini@v1.2.0 is in staging" in said
    assert "passed" in said
    assert "every byte, claim, link and signature holds" in call("verify", "mini@v1.2.0")
    call("promote", "mini@v1.1.0", "--environment", "prod", "--reason", "first")
    call("promote", "mini", "--environment", "prod", "--reason", "newest")
    assert "mini@v1.1.0 is in prod again" in call("rollback", "mini", "--environment", "prod")
    listed = call("list").splitlines()
    assert [line.split()[0] for line in listed[1:]] == [
        "mini@v1.2.0",
        "mini@v1.1.0",
        "mini@v1.0.0",
    ]
    assert "prod" in listed[2]
    assert "staging" in listed[1]
    history = call("list", "--history")
    assert "first" in history
    assert "rolled back" in history
    shown = call("show", "mini#prod")
    assert shown.startswith("mini@v1.1.0")
    assert "pass_at_1" in shown
    differing = call("diff", "mini@v1.0.0", "mini@v1.1.0")
    assert "parameter sft.steps" in differing
    assert "artifact data/sft/policy" in differing
    assert "artifact data/pretrain/policy" not in differing
    served = call("serve", "mini#prod", "--print")
    assert "vllm serve" in served
    assert "mini@v1.1.0" in served


def test_a_dry_run_writes_nothing(call, project):
    before = project.git("tag")
    assert "passed" in call("create", "mini", "--dry-run")
    assert project.git("tag") == before
    project.edit("at_least: 0.0", "at_least: 1.0")
    assert "gate 'works' failed" in call("create", "mini", "--dry-run", code=2)


def test_a_dry_run_refuses_at_once_all_that_creating_would(call, project, monkeypatch, tmp_path):
    monkeypatch.setenv("POSTTRAIN_KEYS", str(tmp_path / "none"))
    project.edit("license: MIT", "license: my-own\n  licenses: {wordz: MIT}")
    said = call("create", "mini", "--dry-run", code=2)
    assert "release.licenses states one of 'wordz', which is no input" in said
    assert said.count("error: ") == 3
    for each in ("changes that are not committed", "posttrain release keys init", "license_link"):
        assert each in said


def test_verify_exits_with_1_and_names_the_file(call, project):
    card = project.root / "releases/mini/v1.1.0/README.md"
    card.write_text(card.read_text().replace("mini", "maxi", 1))
    said = call("verify", "mini@v1.1.0", code=1)
    assert "README.md: its bytes were altered" in said
    archive = project.root / "releases/mini/mini-v1.0.0.tar"
    shutil.copyfile(project.root / "releases/mini/mini-v1.1.0.tar", archive)
    said = call("verify", "mini@v1.0.0", code=1)
    assert "it is not the archive that the git tag mini@v1.0.0 names" in said
    assert "it is the release mini@v1.1.0, not mini@v1.0.0" in said


def test_an_altered_release_is_not_promoted_and_not_rebuilt(call, project, tmp_path):
    model = project.root / "releases/mini/v1.1.0/model.safetensors"
    data = bytearray(model.read_bytes())
    data[-1] ^= 1
    model.write_bytes(data)
    assert "does not verify" in call("promote", "mini@v1.1.0", "--environment", "prod", code=2)
    said = call("rebuild", str(model.parent), "--into", str(tmp_path / "x"), code=2)
    assert "nothing was run" in said
    assert not (tmp_path / "x").exists()


def test_an_altered_release_is_not_rolled_back_to(call, project, tmp_path):
    for version in ("v1.0.0", "v1.1.0", "v1.0.0"):
        call("promote", f"mini@{version}", "--environment", "prod")
    other = tmp_path / "other"
    call("keys", "init", "--folder", str(other))
    back = ("rollback", "mini", "--environment", "prod")
    assert "not signed with the given key" in call(*back, "--key", f"{other}/release.pub", code=2)
    card = project.root / "releases/mini/v1.1.0/README.md"
    whole = card.read_bytes()
    card.write_bytes(whole + b"x")
    said = call(*back, code=2)
    assert "mini@v1.1.0 does not verify: README.md: its bytes were altered" in said
    card.write_bytes(whole)
    assert "mini#prod#4: mini@v1.1.0 is in prod again" in call(*back)
    assert "kind: rollback" in project.git("tag", "-l", "--format=%(contents)", "mini#prod#4")


def test_a_tag_that_was_moved_or_made_by_hand_is_named(call, project):
    message = project.git("tag", "-l", "--format=%(contents)", "mini@v1.0.0")
    claimed = project.git("rev-parse", "mini@v1.0.0^{}").strip()
    head = project.git("rev-parse", "HEAD").strip()
    for field, at, text in (
        ("commit", head, message),
        ("statement", claimed, message.replace("statement: ", "statement: 0")),
        ("policy", claimed, message.replace("policy: ", "policy: 0")),
    ):
        project.git("tag", "-f", "-a", "mini@v1.0.0", at, "-m", text)
        finding = f"the git tag mini@v1.0.0: its {field} is "
        said = call("verify", "mini@v1.0.0", code=1)
        assert said.count(finding) == 2
        assert "holds" not in said
        assert finding in call("list")
        for verb in (("promote", "mini@v1.0.0"), ("rollback", "mini", "--to", "v1.0.0")):
            if verb[0] == "rollback" and field == "commit":
                call("promote", "mini@v1.1.0", "--environment", "prod")
            assert finding in call(*verb, "--environment", "prod", code=2)


def test_a_clone_verifies_with_git_and_the_dvc_remote_alone(call, project, tmp_path, monkeypatch):
    assert "no default DVC remote" in call("push", "mini@v1.1.0", "--dvc", code=2)
    remote = tmp_path / "remote"
    config = project.root / ".dvc/config"
    config.write_text(
        config.read_text() + f"    remote = store\n['remote \"store\"']\n    url = {remote}\n"
    )
    project.commit("remote")
    assert "is in the DVC remote" in call("push", "mini@v1.1.0", "--dvc")
    clone = tmp_path / "clone"
    project.git("clone", "-q", str(project.root), str(clone))
    monkeypatch.chdir(clone)
    assert "there is nothing to do" in call("push", "mini@v1.1.0", code=2)
    key = str(project.keys / "release.pub")
    said = call("verify", "mini@v1.1.0", "--key", key)
    assert said.count("every byte, claim, link and signature holds") == 2
    assert "is neither in" in call("verify", "mini@v1.0.0", "--key", key, code=2)
