"""Pointers move together or not at all, whatever fails and whenever the process is killed."""

import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.provenance.lineage.names import find_node
from posttrain.provenance.lineage.recalls import recall
from posttrain.publishing.release import pointers, promotion, tags
from posttrain.publishing.release.moves import UndoableStep, apply_together, recover
from posttrain.publishing.release.names import parse_tag, parse_version
from posttrain.stage.errors import UserError


class FakeRegistry:
    """MLflow's registry in memory, which can be told to fail."""

    def __init__(self):
        self.versions = {("mini", "v1.0.0"), ("mini", "v1.1.0")}
        self.aliases = {}
        self.failing = False

    def register(self, name, version, source, run_id):
        self.versions.add((name, version))
        if self.failing:
            raise ConnectionError("MLflow is gone")

    def unregister(self, name, version):
        self.versions.discard((name, version))

    def assign(self, name, stage, version):
        if version is None:
            self.aliases.pop((name, stage), None)
        else:
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


# The first step and the last; those between take their turns.
_STEPS = [
    "folder",
    *(pytest.param(s, marks=pytest.mark.slow) for s in ("archive", "model_version", "tag")),
    "ledger",
]


@pytest.mark.parametrize("failing", _STEPS)
def test_a_release_that_fails_at_any_step_is_nowhere(project, registry, monkeypatch, failing):
    before = state_of(project, registry)
    real = pointers.UndoableStep

    def step(kind, do, note):
        def fail():
            # The change is made, and then it goes wrong: it must be taken back too.
            if kind != "ledger":
                do()
            raise ConnectionError(f"{kind} broke")

        return real(kind, fail if kind == failing else do, note)

    monkeypatch.setattr(pointers, "UndoableStep", step)
    with pytest.raises(ConnectionError, match=f"{failing} broke"):
        project.create("mini", registry)
    assert state_of(project, registry) == before
    assert not (project.root / ".posttrain/release-pending.json").exists()
    monkeypatch.setattr(pointers, "UndoableStep", real)
    made = project.create("mini", registry)
    assert str(made.tag) == "mini@v1.2.0"
    assert ("mini", "v1.2.0") in registry.versions


@pytest.mark.parametrize("killed_after", ["folder", "model_version", "tag"])
def test_what_a_killed_release_left_is_undone(project, registry, monkeypatch, killed_after):
    before = state_of(project, registry)
    real = pointers.apply_together

    class Killed(BaseException):
        pass

    def killed(steps, undo, *, journal, is_done):
        """As a kill: steps are made and noted, and nobody is left to undo them."""
        noted = []
        for each in steps:
            noted.append({"kind": each.kind, **each.note})
            from posttrain.publishing.release.moves import _write

            _write(journal, noted)
            each.do()
            if each.kind == killed_after:
                raise Killed

    monkeypatch.setattr(pointers, "apply_together", killed)
    with pytest.raises(Killed):
        project.create("mini", registry)
    assert state_of(project, registry) != before
    monkeypatch.setattr(pointers, "apply_together", real)
    with project.session() as session:
        there = pointers.ReleaseStore(
            project.root, session.workspace.state, session.ledger, registry
        )
        assert killed_after in pointers.repair(there)
        assert pointers.repair(there) == []
    assert state_of(project, registry) == before


def test_environments_move_with_their_alias_and_keep_history(project, place, registry):
    first, second = parse_tag("mini@v1.0.0"), parse_tag("mini@v1.1.0")
    assert promotion.promote(place, first, "prod", "good").tag == "mini#prod#1"
    assert promotion.promote(place, second, "prod", "better").tag == "mini#prod#2"
    assert registry.aliases == {("mini", "prod"): "v1.1.0"}
    with pytest.raises(UserError, match="in prod already"):
        promotion.promote(place, second, "prod", "")
    back = promotion.rollback(place, "mini", "prod", to=None, reason="slow")
    assert (back.tag, str(back.version), back.reason) == ("mini#prod#3", "v1.0.0", "slow")
    assert registry.aliases == {("mini", "prod"): "v1.0.0"}
    with pytest.raises(UserError, match="no version of mini before v1.0.0"):
        promotion.rollback(place, "mini", "prod", to=None, reason="")
    again = promotion.rollback(place, "mini", "prod", to=parse_version("1.1.0"), reason="")
    assert str(again.version) == "v1.1.0"
    history = [(each.number, str(each.version)) for each in tags.promotions(project.root, "mini")]
    assert history == [(1, "v1.0.0"), (2, "v1.1.0"), (3, "v1.0.0"), (4, "v1.1.0")]
    gto = subprocess.run(
        [str(Path(sys.executable).parent / "gto"), "show", "mini#prod", "--version"],
        cwd=project.root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert gto.stdout.strip() == "v1.1.0"


def test_a_failing_alias_leaves_the_environment_where_it_was(project, place, registry):
    promotion.promote(place, parse_tag("mini@v1.0.0"), "prod", "")
    registry.failing = True
    with pytest.raises(ConnectionError):
        promotion.promote(place, parse_tag("mini@v1.1.0"), "prod", "")
    assert registry.aliases == {("mini", "prod"): "v1.0.0"}
    assert "mini#prod#2" not in project.git("tag")


def test_a_failing_tag_takes_the_alias_back(project, place, registry, monkeypatch):
    def broken(root, ref, commit, message, *, after):
        raise UserError("git is broken")

    monkeypatch.setattr(tags, "write_tag", broken)
    with pytest.raises(UserError, match="git is broken"):
        promotion.promote(place, parse_tag("mini@v1.1.0"), "staging", "")
    assert registry.aliases == {}
    assert "staging" not in project.git("tag")


@pytest.mark.slow
def test_what_is_not_ours_is_never_undone(project, place, registry):
    project.git("tag", "mini#prod#1")
    with pytest.raises(UserError, match="no release of ours"):
        promotion.promote(place, parse_tag("mini@v1.1.0"), "prod", "")
    assert "mini#prod#1" in project.git("tag")
    theirs = project.root / "releases/mini/v1.2.0"
    theirs.mkdir()
    with pytest.raises(UserError, match="move it away"):
        project.create("mini", registry)
    assert theirs.is_dir()


def test_a_recalled_release_is_neither_promoted_nor_rolled_back_to(project, place):
    promotion.promote(place, parse_tag("mini@v1.0.0"), "prod", "")
    promotion.promote(place, parse_tag("mini@v1.1.0"), "prod", "")
    node = find_node(place.ledger, "mini@v1.0.0", root=project.root, cwd=project.root)
    recall(place.ledger, node, reason="leaks")
    with pytest.raises(UserError, match="leaks"):
        promotion.rollback(place, "mini", "prod", to=None, reason="")
    with pytest.raises(UserError, match="leaks"):
        promotion.promote(place, parse_tag("mini@v1.0.0"), "staging", "")


def never(_note):
    return False


def test_an_undo_that_fails_is_tried_again(tmp_path):
    journal, undone = tmp_path / "journal.json", []
    broken = [True]

    def undo(note):
        if broken[0] and note["number"] == 1:
            raise ConnectionError("still gone")
        undone.append(note["number"])

    def fail():
        raise ValueError("third")

    steps = [UndoableStep("s", lambda: None, {"number": n}) for n in (1, 2)]
    with pytest.raises(ConnectionError):
        apply_together(
            [*steps, UndoableStep("s", fail, {"number": 3})],
            {"s": undo},
            journal=journal,
            is_done=never,
        )
    assert undone == [3, 2]
    assert journal.exists()
    broken[0] = False
    assert recover({"s": undo}, journal=journal, is_done=never) == ["s", "s", "s"]
    assert undone == [3, 2, 3, 2, 1]
    assert not journal.exists()


def test_an_interrupt_after_the_last_step_takes_nothing_back(tmp_path):
    done, journal = [], tmp_path / "journal.json"

    def last():
        done.append("last")
        raise KeyboardInterrupt

    steps = [
        UndoableStep("s", lambda: done.append("first"), {"last": False}),
        UndoableStep("s", last, {"last": True}),
    ]
    undo = {"s": lambda _note: done.pop()}
    with pytest.raises(KeyboardInterrupt):
        apply_together(steps, undo, journal=journal, is_done=lambda note: note["last"])
    assert done == ["first", "last"]
    assert not journal.exists()


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
        promotion.promote(place, made.tag, "prod", "")
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    version = client.get_model_version_by_alias("fresh", "prod")
    assert version.tags["posttrain.release"] == "v0.1.0"
    registry.assign("fresh", "prod", None)
    registry.unregister("fresh", "v0.1.0")
    assert client.search_registered_models() == []
