"""A slice of what `python -m benchmarks.reliability.alterations` tries, on the command itself."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from benchmarks.reliability.alterations import WAYS, run

pytestmark = pytest.mark.slow


def tried(place, room, count, seed):
    return list(run(place, room, count, seed))


@pytest.fixture(scope="module")
def fresh():
    """Where the command is forked from: a fork holds what this process has collected until now."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.fixture
def place(released, tmp_path):
    for name in ("project", "keys"):
        (tmp_path / name).symlink_to(released.project.root.parent / name)
    return tmp_path


@pytest.mark.parametrize("room", WAYS)
def test_what_is_altered_is_found_in_a_sentence(fresh, place, room):
    # The first three ways; below and by the command it is all of them.
    verdicts = fresh.submit(tried, place, room, 3, 7).result()
    assert [each for each in verdicts if each.wrong] == []
    assert all(each.said.startswith(("altered  ", "error: ")) for each in verdicts)
    assert {path.name for path in place.iterdir()} == {"project", "keys", "said"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("room", WAYS)
def test_every_way_of_altering_is_found(fresh, place, room):
    verdicts = fresh.submit(tried, place, room, len(WAYS[room]), 8).result()
    assert {each.way for each in verdicts} == {*WAYS[room]}
    assert [each for each in verdicts if each.wrong] == []
