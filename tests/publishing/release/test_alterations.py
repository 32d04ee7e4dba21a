"""A slice of what `python -m benchmarks.reliability.alterations` tries, on the command itself."""

import pytest

from benchmarks.reliability.alterations import WAYS, run


@pytest.fixture
def place(released, tmp_path):
    for name in ("project", "keys"):
        (tmp_path / name).symlink_to(released.project.root.parent / name)
    return tmp_path


@pytest.mark.parametrize("room", WAYS)
def test_what_is_altered_is_found_in_a_sentence(place, room):
    # Five ways a run, others with another seed; the command tries all.
    verdicts = list(run(place, room, 5, seed=7))
    assert [each for each in verdicts if each.wrong] == []
    assert all(each.said.startswith(("altered  ", "error: ")) for each in verdicts)
    assert {path.name for path in place.iterdir()} == {"project", "keys", "said"}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("room", WAYS)
def test_every_way_of_altering_is_found(place, room):
    verdicts = list(run(place, room, len(WAYS[room]), seed=8))
    assert {each.way for each in verdicts} == {*WAYS[room]}
    assert [each for each in verdicts if each.wrong] == []
