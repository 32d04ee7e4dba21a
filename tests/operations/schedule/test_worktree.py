"""A workspace of its own for each schedule, at a commit, with the project's cache."""

import configparser

import pytest

from posttrain.operations.schedule.worktree import head, link_inputs, prepare, record
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import digest_path


def test_a_run_gets_the_commit_and_not_the_edits(project):
    first = prepare(project.root, "a")
    assert (first.commit, first.left_out) == (head(project.root), ())
    text = (project.root / "recipe.yaml").read_text()
    project.toy.recipe("first: {amount: 5}")
    edited = prepare(project.root, "a")
    assert edited.left_out == ("recipe.yaml",)
    assert (edited.root / "recipe.yaml").read_text() == text
    project.commit()
    again = prepare(project.root, "a")
    assert again.root == first.root
    assert again.commit != first.commit
    assert "amount: 5" in (again.root / "recipe.yaml").read_text()
    # What an earlier run left in a tracked file gives way; what it made stays.
    (again.root / "recipe.yaml").write_text("flow: other\n")
    (again.root / "data").mkdir()
    (again.root / "data/kept").touch()
    assert "amount: 5" in (prepare(project.root, "a").root / "recipe.yaml").read_text()
    assert (again.root / "data/kept").exists()


def test_two_schedules_share_the_cache_and_nothing_else(project):
    places = [prepare(project.root, name).root for name in ("a", "b")]
    assert places[0] != places[1]
    for place in places:
        config = configparser.ConfigParser()
        config.read(place / ".dvc/config.local")
        assert config["cache"]["dir"] == str(project.root / ".dvc/cache")


def test_what_a_run_changed_is_committed_on_no_branch(project):
    place = prepare(project.root, "a").root
    before = head(project.root)
    record(place, "nothing")
    assert head(place) == before
    (place / "recipe.yaml").write_text("flow: other\n")
    record(place, "the outputs")
    assert head(place) != before
    assert head(project.root) == before
    assert prepare(project.root, "a").commit == before


def test_a_worktree_that_was_deleted_by_hand_is_made_again(project):
    import shutil

    place = prepare(project.root, "a").root
    shutil.rmtree(place)
    assert prepare(project.root, "a").root == place
    assert (place / "recipe.yaml").exists()


def test_files_that_git_does_not_have_are_linked(project):
    project.toy.write(".gitignore", ".posttrain/\n__pycache__/\ndata/\nbig/\n")
    project.toy.write("big/in.jsonl", "{}\n")
    project.toy.recipe("first: {path: big/in.jsonl, label: '../..', mood: nothing-there}")
    project.commit()
    place = prepare(project.root, "a").root
    link_inputs(project.root, place, ".")
    link_inputs(project.root, place, ".")
    assert (place / "big/in.jsonl").resolve() == project.root / "big/in.jsonl"
    assert not (place / "nothing-there").exists()


def test_a_folder_from_outside_of_the_project_can_be_hashed_in_the_worktree(project):
    brought = project.root.parent / f"{project.root.name}-model"
    (brought / "deep").mkdir(parents=True)
    (brought / "config.json").write_text("{}")
    (brought / "deep/weights").write_text("1")
    (brought / "linked").symlink_to("config.json")
    project.toy.recipe(f"first: {{path: ../{brought.name}}}")
    project.commit()
    place = prepare(project.root, "a").root
    seen = place / ".." / brought.name
    # What an earlier version of this program left: one link to the folder.
    (place.parent / brought.name).symlink_to(brought)
    for content in ("1", "2"):
        (brought / "deep/weights").write_text(content)
        link_inputs(project.root, place, ".")
        assert digest_path(seen) == digest_path(brought)
    (brought / "deep/weights").rename(brought / "deep/renamed")
    link_inputs(project.root, place, ".")
    assert digest_path(seen) == digest_path(brought)
    # What the hash refuses of the folder itself, it refuses here too.
    (brought / "other").symlink_to(brought / "deep")
    link_inputs(project.root, place, ".")
    with pytest.raises(UserError, match="link to a directory"):
        digest_path(seen)
