"""`posttrain release` as a user calls it: what it prints, how it exits, and its help."""

import os
import subprocess
from pathlib import Path

import pytest

from posttrain.cli.main import main
from posttrain.cli.tables import colored, print_table
from posttrain.publishing.release import tags

VERBS = (
    "create",
    "verify",
    "rebuild",
    "promote",
    "rollback",
    "list",
    "show",
    "diff",
    "serve",
    "push",
    "keys",
)


@pytest.fixture
def call(monkeypatch, capfd, tmp_path_factory):
    monkeypatch.setenv("POSTTRAIN_TRACKING", "off")
    # Outside of the toy project, which is a repository.
    folder = tmp_path_factory.mktemp("pair") / "keys"
    monkeypatch.setenv("POSTTRAIN_KEYS", str(folder))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["posttrain", "release", *arguments])
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stopped:
            code = stopped.code
        said = capfd.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    return run


def test_every_verb_has_help(call):
    code, out, _ = call("--help")
    assert code == 0
    assert "Examples:" in out
    for verb in VERBS:
        assert f"  {verb}" in out
        assert call(verb, "--help")[0] == 0


def test_keys_are_made_once_and_shown(call):
    assert call("keys", "init")[0] == 0
    folder = Path(os.environ["POSTTRAIN_KEYS"])
    code, out, _ = call("keys", "show")
    assert code == 0
    assert str(folder / "release.pub") in out
    private = (folder / "release.key").read_text().splitlines()[1]
    code, out, err = call("keys", "init")
    assert code == 2
    assert "exists" in err
    assert private not in out + err


def test_what_is_not_there_is_one_sentence(call, toy, monkeypatch):
    monkeypatch.chdir(toy.root)
    call("keys", "init")
    code, _, err = call("verify", "nowhere.tar")
    assert code == 2
    assert "there is no release at nowhere.tar" in err
    subprocess.run(["git", "init", "-q"], cwd=toy.root, check=True)
    toy.run()
    assert call("list")[1].startswith("Nothing is released")
    for arguments, said in [
        (("show", "mini"), "there is no release of 'mini'"),
        (("promote", "mini@v1.0.0", "--environment", "prod"), "there is no release mini@v1.0.0"),
        (("rollback", "mini", "--environment", "prod"), "was never in prod"),
        (("verify", "mini@v1.0.0"), "git has no tag mini@v1.0.0"),
        (("create", "Bad Name"), "is no name of a release"),
        (("create", "mini"), "has no git commit to release"),
        (("create", "mini", "--key", "absent"), "cannot read the key absent"),
    ]:
        code, _, err = call(*arguments)
        assert code == 2, (arguments, err)
        assert said in err, (arguments, err)
    assert tags.release_tags(toy.root) == {}
    assert not (toy.root / "releases").exists()


def test_the_history_shows_a_reason_as_it_was_given(call, toy, monkeypatch):
    monkeypatch.chdir(toy.root)
    subprocess.run(["git", "init", "-q"], cwd=toy.root, check=True)
    commit = ("git", "-c", "user.name=x", "-c", "user.email=x@y.z", "commit", "-q")
    subprocess.run([*commit, "--allow-empty", "-m", "x"], cwd=toy.root, check=True)
    monkeypatch.setenv("GIT_COMMITTER_NAME", "x")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "x@y.z")
    toy.run()
    said = "its files were in [/tmp], not in [red]"
    tags.write_tag(toy.root, "mini#prod#1", "HEAD", f"version: v1.0.0\nreason: {said}\n")
    code, out, _ = call("list", "--history")
    assert code == 0
    assert said in out


def test_tables_show_text_as_it_is_and_color_what_is_meant_so(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_table(("a", "b"), [("[/tmp] [red]x[/]", colored("differs", "red", " [/etc]"))])
    out = capsys.readouterr().out
    assert "[/tmp] [red]x[/]" in out
    assert "\x1b[31mdiffers\x1b[0m [/etc]" in out


def test_a_mistyped_gate_is_named(call, toy, monkeypatch):
    monkeypatch.chdir(toy.root)
    call("keys", "init")
    toy.recipe("release: {gates: [{name: a, kind: improvment}]}\n")
    toy.run()
    code, _, err = call("create", "mini", "--dry-run")
    assert code == 2
    assert "release.gates.0.kind" in err
    toy.recipe("release: {gates: [{name: a, kind: improvement, margn: 1}]}\n")
    assert "did you mean 'margin'" in call("create", "mini", "--dry-run")[2]


def test_the_release_section_is_no_part_of_any_key(toy):
    toy.run()
    toy.recipe("release: {policy: third.result}\n")
    assert toy.run() == {}
    generated = (toy.root / "dvc.yaml").read_text() + (toy.root / "params.yaml").read_text()
    assert "release" not in generated
