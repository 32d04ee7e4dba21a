"""Pointers move together or not at all, whatever fails and whenever the process is killed."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from posttrain.provenance.ledger import Release
from posttrain.provenance.ledger.annotations import Annotations
from posttrain.provenance.lineage.names import find_node
from posttrain.provenance.lineage.recalls import recall
from posttrain.publishing.release import pointers, tags
from posttrain.publishing.release.names import parse_tag, parse_version
from posttrain.stage.errors import UserError


class FakeRegistry:
    """MLflow's registry in memory, which can be told to fail."""

    def __init__(self):
        self.versions = {("mini", "v1.0.0"), ("mini", "v1.1.0")}
        self.aliases = {}
        self.failing = False

    def register(self, name, version, source, *, policy=""):
        self.versions.add((name, version))
        if self.failing:
            raise ConnectionError("MLflow is gone")

    def unregister(self, name, version):
        self.versions.discard((name, version))

    def require(self, name, version):
        if (name, version) not in self.versions:
            raise UserError(f"no model version for {name}@{version}")

    def assign(self, name, stage, version):
        self.aliases.pop((name, stage), None)
        if version is not None and (name, version) in self.versions:
            self.aliases[name, stage] = version
        if self.failing and version is not None:
            self.failing = False
            raise ConnectionError("MLflow is gone")

    def assigned(self, name, stage):
        return self.aliases.get((name, stage))


@pytest.fixture
def project(released, tmp_path):
    saved = list(sys.path)
    copy = released.project.copy(tmp_path / "copy")
    copy.commit("third")
    yield copy
    sys.path[:] = saved


@pytest.fixture
def registry():
    return FakeRegistry()


@pytest.fixture
def place(project, registry):
    with project.session() as session:
        yield pointers.ReleaseStore(project.root, session.workspace.state, session.ledger, registry)


def state_of(project, registry):
    """All that a failed release must leave as it was."""
    releases = sorted(
        str(path.relative_to(project.root)) for path in (project.root / "releases").rglob("*")
    )
    with project.session() as session:
        recorded = [each.tag for each in session.ledger.annotations.releases()]
    aliases = dict(registry.aliases)
    return project.git("tag"), releases, recorded, set(registry.versions), aliases


class Broken(Exception):
    """What a step fails with."""


class Killed(BaseException):
    """As a kill: nothing after it is done."""


# Each step of a release: what makes it, and how that is called.
STEPS = {
    "folder": (Path, "rename", lambda path, _target: path.name == "folder"),
    "archive": (Path, "rename", lambda path, _target: path.name == "archive.tar"),
    "model_version": (FakeRegistry, "register", lambda *_, **__: True),
    "tag": (tags, "write_tag", lambda *_, **__: True),
    "ledger": (Annotations, "release", lambda *_: True),
}


@pytest.fixture
def fail_at(monkeypatch):
    """Let a step be made and then fail; the last one, which decides, fails before it is made."""

    def fail(name, error):
        place, function, is_it = STEPS[name]
        real = getattr(place, function)

        def failing(*given, **named):
            if not is_it(*given, **named):
                return real(*given, **named)
            if name != "ledger":
                real(*given, **named)
            raise error

        monkeypatch.setattr(place, function, failing)

    return fail


@pytest.mark.slow
@pytest.mark.parametrize(
    "failing",
    # After the last step there is most to undo; the others take their turns.
    [*list(STEPS)[:-1], pytest.param("ledger", marks=pytest.mark.core)],
)
def test_a_release_that_fails_at_any_step_is_nowhere(
    project, registry, monkeypatch, fail_at, failing
):
    before = state_of(project, registry)
    fail_at(failing, Broken(failing))
    with pytest.raises(Broken, match=failing):
        project.create("mini", registry)
    assert state_of(project, registry) == before
    assert not (project.root / ".posttrain/release-pending.json").exists()
    monkeypatch.undo()
    made = project.create("mini", registry)
    assert str(made.tag) == "mini@v1.2.0"
    assert ("mini", "v1.2.0") in registry.versions


@pytest.mark.slow
@pytest.mark.parametrize(
    "killed_after", ["folder", "model_version", pytest.param("tag", marks=pytest.mark.core)]
)
def test_what_a_killed_release_left_is_undone(
    project, registry, monkeypatch, fail_at, killed_after
):
    before = state_of(project, registry)
    fail_at(killed_after, Killed())
    # Nobody is left to undo anything.
    monkeypatch.setattr(pointers, "_settle", lambda _store: "")
    with pytest.raises(Killed):
        project.create("mini", registry)
    assert state_of(project, registry) != before
    monkeypatch.undo()
    with project.session() as session:
        there = pointers.ReleaseStore(
            project.root, session.workspace.state, session.ledger, registry
        )
        assert pointers.repair(there) == "the release mini@v1.2.0"
        assert pointers.repair(there) == ""
    assert state_of(project, registry) == before


@pytest.mark.slow
@pytest.mark.core
def test_environments_move_with_their_alias_and_keep_history(project, place, registry):
    first, second = parse_tag("mini@v1.0.0"), parse_tag("mini@v1.1.0")
    assert pointers.promote(place, first, "prod", "good").tag == "mini#prod#1"
    assert pointers.promote(place, second, "prod", "better").tag == "mini#prod#2"
    assert registry.aliases == {("mini", "prod"): "v1.1.0"}
    with pytest.raises(UserError, match="in prod already"):
        pointers.promote(place, second, "prod", "")
    back = back_from(place, reason="slow")
    assert (back.tag, str(back.version), back.reason) == ("mini#prod#3", "v1.0.0", "slow")
    assert registry.aliases == {("mini", "prod"): "v1.0.0"}
    with pytest.raises(UserError, match="no version of mini before v1.0.0"):
        back_from(place)
    again = back_from(place, to=parse_version("1.1.0"))
    assert str(again.version) == "v1.1.0"
    moves = tags.promotions(project.root, "mini")
    assert {each.actor for each in moves} == {"test <test@example.org>"}
    history = [(each.number, str(each.version)) for each in moves]
    assert history == [(1, "v1.0.0"), (2, "v1.1.0"), (3, "v1.0.0"), (4, "v1.1.0")]
    gto = subprocess.run(
        [str(Path(sys.executable).parent / "gto"), "show", "mini#prod", "--version"],
        cwd=project.root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert gto.stdout.strip() == "v1.1.0"


def back_from(place, *, to=None, reason=""):
    """Roll prod back as the command does."""
    tag = pointers.rollback_target(place.root, "mini", "prod", to)
    return pointers.rollback(place, tag, "prod", reason)


A, B, C = (parse_version(f"v{number}.0.0") for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("history", "before"),
    [
        # Promoted again is not gone back: what was there a moment ago is the version before.
        ([(B, "promotion"), (A, "promotion"), (B, "promotion")], A),
        ([(A, "promotion"), (B, "promotion"), (A, "rollback")], None),
        ([(A, "promotion"), (B, "promotion"), (C, "promotion"), (B, "rollback")], A),
        ([(A, "promotion"), (B, "promotion"), (A, "rollback"), (C, "promotion")], A),
        ([(A, "promotion"), (B, "promotion"), (A, "promotion"), (B, "rollback")], A),
        ([(A, "promotion"), (B, "promotion")] * 2 + [(A, "rollback")], B),
        ([(A, "promotion"), (B, "promotion")] * 2 + [(A, "rollback"), (B, "rollback")], A),
        ([(B, "promotion"), (A, "rollback")], B),
        # Tags of 0.1: its own word for a rollback counts, a guess does not.
        ([(A, ""), (B, ""), (A, "rolled back")], None),
        ([(A, ""), (B, ""), (C, ""), (B, "rolled back")], A),
        ([(A, ""), (B, ""), (A, "back for a while")], None),
        ([(A, ""), (B, ""), (A, "back for a while"), (C, "promotion")], A),
    ],
)
def test_what_an_environment_had_before_is_known_by_marks(monkeypatch, history, before):
    promotions = [
        tags.Promotion(
            "mini",
            "prod",
            number,
            version,
            0.0,
            reason="" if mark in ("promotion", "rollback") else mark,
            kind=mark if mark in ("promotion", "rollback") else "",
        )
        for number, (version, mark) in enumerate(history, 1)
    ]
    monkeypatch.setattr(tags, "promotions", lambda *_: promotions)
    if before is None:
        with pytest.raises(UserError, match="name one with --to VERSION"):
            pointers.rollback_target(Path(), "mini", "prod")
    else:
        assert pointers.rollback_target(Path(), "mini", "prod").version == before


@pytest.mark.slow
@pytest.mark.core
def test_a_reason_is_one_line_and_says_nothing_else_to_git(project, place):
    moved = pointers.promote(place, parse_tag("mini@v1.0.0"), "prod", "x\nversion: v1.1.0")
    assert (str(moved.version), moved.reason) == ("v1.0.0", "x version: v1.1.0")


@pytest.mark.slow
@pytest.mark.core
def test_a_failing_alias_leaves_the_environment_where_it_was(project, place, registry):
    pointers.promote(place, parse_tag("mini@v1.0.0"), "prod", "")
    registry.failing = True
    with pytest.raises(ConnectionError):
        pointers.promote(place, parse_tag("mini@v1.1.0"), "prod", "")
    assert registry.aliases == {("mini", "prod"): "v1.0.0"}
    assert "mini#prod#2" not in project.git("tag")


@pytest.mark.slow
@pytest.mark.core
def test_a_failing_tag_takes_the_alias_back(project, place, registry, monkeypatch):
    def broken(root, ref, commit, message, *, after):
        raise UserError("git is broken")

    monkeypatch.setattr(tags, "write_tag", broken)
    with pytest.raises(UserError, match="git is broken"):
        pointers.promote(place, parse_tag("mini@v1.1.0"), "staging", "")
    assert registry.aliases == {}
    assert "staging" not in project.git("tag")


@pytest.mark.slow
def test_what_is_not_ours_is_never_undone(project, place, registry):
    project.git("tag", "mini#prod#1")
    with pytest.raises(UserError, match="no release of ours"):
        pointers.promote(place, parse_tag("mini@v1.1.0"), "prod", "")
    assert "mini#prod#1" in project.git("tag")
    theirs = project.root / "releases/mini/v1.2.0"
    theirs.mkdir()
    with pytest.raises(UserError, match="move it away"):
        project.create("mini", registry)
    assert theirs.is_dir()


@pytest.mark.slow
@pytest.mark.core
def test_a_recalled_release_is_neither_promoted_nor_rolled_back_to(project, place):
    pointers.promote(place, parse_tag("mini@v1.0.0"), "prod", "")
    pointers.promote(place, parse_tag("mini@v1.1.0"), "prod", "")
    node = find_node(place.ledger, "mini@v1.0.0", root=project.root, cwd=project.root)
    recall(place.ledger, node, reason="leaks")
    with pytest.raises(UserError, match="leaks"):
        back_from(place)
    with pytest.raises(UserError, match="leaks"):
        pointers.promote(place, parse_tag("mini@v1.0.0"), "staging", "")


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A store without a project, and the release mini@v1.0.0, ready to be published."""
    monkeypatch.setattr(tags, "has_tag", lambda root, ref: ref in tags_there)
    tags_there = set()
    monkeypatch.setattr(tags, "write_tag", lambda root, ref, *_, **__: tags_there.add(ref))
    monkeypatch.setattr(tags, "delete_tag", lambda root, ref: tags_there.discard(ref))
    (tmp_path / "staging/folder").mkdir(parents=True)
    (tmp_path / "staging/archive.tar").touch()
    ledger = SimpleNamespace(annotations=SimpleNamespace(releases=lambda: recorded))
    recorded = []
    ledger.annotations.release = recorded.append
    registry = FakeRegistry()
    registry.versions.clear()
    store = pointers.ReleaseStore(tmp_path, tmp_path, ledger, registry)
    return store, Release("mini@v1.0.0", 1.0, (), "commit", "statement")


def test_what_cannot_be_taken_back_is_tried_again_and_the_rest_is_taken_back(empty, monkeypatch):
    store, release = empty
    store.registry.failing = True

    def gone(name, version):
        raise ConnectionError("still gone")

    with monkeypatch.context() as patched:
        patched.setattr(store.registry, "unregister", gone)
        with pytest.raises(ConnectionError, match="still gone"):
            pointers.publish(store, store.root / "staging", release, "message")
    assert not (store.root / "releases/mini/v1.0.0").exists()
    assert store.registry.versions == {("mini", "v1.0.0")}
    assert store.journal.exists()
    assert pointers.repair(store) == "the release mini@v1.0.0"
    assert store.registry.versions == set()
    assert not store.journal.exists()


def test_an_interrupt_after_the_last_step_takes_nothing_back(empty):
    store, release = empty
    real = store.ledger.annotations.release

    def interrupted(release):
        real(release)
        raise KeyboardInterrupt

    store.ledger.annotations.release = interrupted
    with pytest.raises(KeyboardInterrupt):
        pointers.publish(store, store.root / "staging", release, "message")
    assert (store.root / "releases/mini/v1.0.0").is_dir()
    assert tags.has_tag(store.root, "mini@v1.0.0")
    assert not store.journal.exists()


@pytest.mark.parametrize("steps", range(6))
def test_a_release_that_0_1_left_half_done_is_taken_back(empty, steps):
    store, release = empty
    notes = [
        {"kind": "folder", "path": str(store.root / "releases/mini/v1.0.0")},
        {"kind": "archive", "path": str(store.root / "releases/mini/mini-v1.0.0.tar")},
        {"kind": "model_version", "name": "mini", "version": "v1.0.0"},
        {"kind": "tag", "ref": "mini@v1.0.0"},
        {"kind": "ledger", "tag": "mini@v1.0.0"},
    ]
    store.registry.versions.discard(("mini", "v1.0.0"))
    pointers.publish(store, store.root / "staging", release, "message")
    # What is noted was made, and the last step may have been: then all of it stays.
    is_done = steps == 5
    if not is_done:
        store.ledger.annotations.releases = list
    store.journal.write_text(json.dumps(notes[:steps]))
    undone = "" if is_done or not steps else "the release mini@v1.0.0"
    assert pointers.repair(store) == undone
    assert not store.journal.exists()
    stays = not undone
    assert (store.root / "releases/mini/v1.0.0").exists() == stays
    assert (store.root / "releases/mini/mini-v1.0.0.tar").exists() == stays
    assert tags.has_tag(store.root, "mini@v1.0.0") == stays
    if steps > 2:
        assert (("mini", "v1.0.0") in store.registry.versions) == stays


@pytest.mark.parametrize("mirrored", [True, False])
@pytest.mark.parametrize("tagged", [True, False])
def test_a_promotion_that_0_1_left_half_done_is_taken_back(empty, mirrored, tagged):
    store, _ = empty
    subprocess.run(["git", "init", "-q"], cwd=store.root, check=True)
    alias = {"kind": "alias", "name": "mini", "stage": "prod", "before": "v1.0.0"}
    tag = {"kind": "stage_tag", "ref": "mini#prod#1"}
    notes = [alias] * mirrored + [tag] * tagged
    store.registry.versions = {("mini", "v1.0.0"), ("mini", "v1.1.0")}
    store.registry.aliases["mini", "prod"] = "v1.1.0"
    store.journal.write_text(json.dumps(notes))
    assert pointers.repair(store) == ("the promotion mini#prod#1" if notes else "")
    assert store.registry.aliases["mini", "prod"] == ("v1.0.0" if mirrored else "v1.1.0")
    assert not store.journal.exists()


@pytest.mark.slow
@pytest.mark.core
def test_a_tag_that_cannot_be_deleted_is_said(project):
    lock = project.root / ".git/packed-refs.lock"
    project.git("pack-refs", "--all")
    lock.touch()
    with pytest.raises(UserError, match="git did not delete the tag mini@v1.1.0: .*do this again"):
        tags.delete_tag(project.root, "mini@v1.1.0")
    lock.unlink()
    left = project.root / ".git/refs/tags/mini@v1.1.0.lock"
    left.touch()
    tags.delete_tag(project.root, "mini@v1.1.0")
    assert not left.exists()
    assert not tags.has_tag(project.root, "mini@v1.1.0")
    tags.delete_tag(project.root, "mini@v1.1.0")


@pytest.mark.slow
@pytest.mark.core
def test_an_orphaned_git_is_waited_for(project):
    """A git whose parent was killed holds the lock open until it has ended."""
    held = tags._alone(project.root)
    orphan = subprocess.Popen(["sleep", "0.5"], pass_fds=[held.__enter__()])
    held.__exit__(None, None, None)
    tags.delete_tag(project.root, "mini@v1.1.0")
    assert orphan.poll() == 0
    assert "mini@v1.1.0" not in project.git("tag")


@pytest.mark.slow
def test_the_real_mlflow_mirrors_it(project, tmp_path):
    from mlflow import MlflowClient

    from posttrain.publishing.release.registry import Registry

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    registry = Registry(project.root / ".posttrain", uri)
    made = project.create("fresh", registry)
    with project.session() as session:
        place = pointers.ReleaseStore(
            project.root, session.workspace.state, session.ledger, registry
        )
        pointers.promote(place, made.tag, "prod", "")
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    version = client.get_model_version_by_alias("fresh", "prod")
    assert version.tags["posttrain.release"] == "v0.1.0"
    registry.assign("fresh", "prod", None)
    registry.unregister("fresh", "v0.1.0")
    assert client.search_registered_models() == []
