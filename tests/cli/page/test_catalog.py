"""Which tables there are: recipes share a ledger, and record paths of their own folders."""

from dataclasses import replace

import pytest

from posttrain.cli.page.catalog import newest_of_kind, others_of_kind, tables_made, versions_of
from posttrain.operations.reviewing import reviews_of
from posttrain.provenance.ledger import Run, open_ledger
from tests.cli.page.conftest import Made, rollouts

OURS, THEIRS = "data/rl/rollouts.parquet", "recipes/other/data/rl/rollouts.parquet"
RUNS = ((OURS, "."), (THEIRS, "recipes/other"), (OURS, "."))


@pytest.fixture
def made(tmp_path):
    """Two versions of one recipe, and a table of another one between them."""
    (tmp_path / ".dvc").mkdir()
    with open_ledger(tmp_path / ".posttrain" / "ledger.db") as ledger:
        found = Made(tmp_path, ledger, {})
        for number, (place, folder) in enumerate(
            [(OURS, "."), (THEIRS, "recipes/other"), (OURS, ".")]
        ):
            name = f"rollouts#{number}"
            run = Run(name, "a", 100.0 * number, ended=1.0, status="succeeded")
            ledger.append_run(run, process="elsewhere 1 x")
            ledger.annotations.note("recipe_folder", {name: folder})
            (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
            rollouts(second=True).head(number + 1).write_parquet(tmp_path / place)
            found.artifact(name, "rollouts", place, producer="rl")
            found.records[name] = replace(found.records[name], path=OURS)
            found.stage(name, "rl", [], [name], ended=100.0 * number)
        yield found


def test_tables_of_two_recipes_are_apart(made):
    first, other, second = (made.records[f"rollouts#{number}"].digest for number in range(3))
    tables = tables_made(made.ledger, made.root)
    assert [(each.record.path, each.record.digest) for each in tables] == [
        (OURS, second), (THEIRS, other), (OURS, first),
    ]  # fmt: skip
    newest = newest_of_kind(made.ledger, made.root, "rollouts")
    assert (newest.path, newest.digest) == (OURS, second)
    ours = versions_of(made.ledger, made.root, newest)
    assert [each.record.digest for each in ours] == [second, first]
    (beside,) = others_of_kind(made.ledger, made.root, newest)
    assert (beside.path, beside.digest) == (THEIRS, other)
    theirs = made.project.artifact(other)
    assert theirs.path == THEIRS
    assert [each.record.digest for each in versions_of(made.ledger, made.root, theirs)] == [other]
    assert made.project.file(theirs) == made.root / THEIRS
    # What another version lies over is read from DVC's cache.
    assert ".dvc/cache" in str(made.project.file(made.project.artifact(first)))
    # Reviews of the two are two tables.
    assert reviews_of(made.root, OURS) != reviews_of(made.root, THEIRS)


def test_bytes_that_were_reused_were_made_when_they_were_first(made):
    made.stage("rollouts#2", "rl", [], ["rollouts#0"], id="again", ended=900.0, status="cached")
    tables = tables_made(made.ledger, made.root)
    assert [(each.run_id, each.made) for each in tables if each.record.path == OURS] == [
        ("rollouts#2", 0.0), ("rollouts#2", 200.0),
    ]  # fmt: skip
