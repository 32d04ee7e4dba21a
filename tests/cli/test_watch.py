"""`posttrain run --watch`: what it looks at, and when it runs again."""

import os

import pytest

from posttrain.cli import watch
from posttrain.pipeline.execution.session import open_session
from posttrain.stage.errors import UserError


class Enough(Exception):
    """Ends the watch of a test."""


@pytest.fixture
def moments(monkeypatch):
    """What is done while the watch waits, one after the other; then it ends."""
    todo = []

    def wait(_seconds):
        if not todo:
            raise Enough
        todo.pop(0)()

    monkeypatch.setattr(watch.time, "sleep", wait)
    return todo


def nothing():
    pass


def test_recipe_code_and_files_are_watched_and_what_is_generated_is_not(toy):
    toy.run()
    with open_session(toy.root) as session:
        places = watch.places_of(session)
    seen = {os.path.relpath(path, toy.root) for path in watch.watched(places)}
    assert {"recipe.yaml", f"{toy.package}/stage.py", toy.flow.replace(".", "/") + ".py"} <= seen
    generated = {"params.yaml", "dvc.yaml", "posttrain.lock", "metrics.json"}
    assert not seen & generated
    assert not any(name.startswith(("data", ".")) for name in seen)


def test_it_runs_again_once_a_change_has_stood_still(toy, moments, capfd):
    ran = []
    moments += [
        nothing,
        lambda: toy.recipe("second: {amount: 2}"),
        lambda: toy.recipe("second: {amount: 3}"),  # Still being written: not yet.
        nothing,
    ]
    with pytest.raises(Enough):
        watch.run_on_changes(
            toy.root, (), lambda: ran.append((toy.root / "recipe.yaml").read_text())
        )
    assert len(ran) == 2
    assert "amount: 3" in ran[1]
    assert "changed: " in capfd.readouterr().err


def test_what_fails_is_said_and_a_broken_recipe_is_watched_until_it_is_mended(toy, moments, capfd):
    good = (toy.root / "recipe.yaml").read_text()
    ran = []

    def once():
        ran.append(1)
        if len(ran) == 1:
            raise UserError("stage x: no")

    moments += [
        lambda: toy.write("recipe.yaml", "flow: 3"),
        nothing,
        lambda: toy.write("recipe.yaml", good + "# mended"),
        nothing,
    ]
    with pytest.raises(Enough):
        watch.run_on_changes(toy.root, (), once)
    err = capfd.readouterr().err
    assert "error: stage x: no" in err
    assert "'flow' must name a module" in err
    assert len(ran) == 2
