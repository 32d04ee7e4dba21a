"""Order, refusals and losses, with workers that only count."""

import os
import signal
import time
from pathlib import Path

import pytest

from posttrain.backends.cluster.worker_pool import WorkerPool
from posttrain.stage.errors import UserError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


class Adder:
    """Adds what it was equipped with; pieces are (seconds to take, number)."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.tools = None

    def equip(self, version, tools):
        self.tools = tools

    def do(self, piece):
        seconds, number = piece
        time.sleep(seconds)
        if number < 0:
            raise UserError(f"{number} is negative; give it a positive one")
        (self.folder / f"{number}-{time.monotonic_ns()}").touch()
        return self.tools + number

    def close(self):
        pass


class Cursed(Adder):
    """One piece ends every process that touches it."""

    def do(self, piece):
        if piece[1] == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().do(piece)


class Reluctant(Adder):
    """Does not start."""

    def __init__(self, folder):
        raise UserError("this engine is not installed; take another")


@pytest.fixture
def crew(cluster, some, tmp_path):
    crews = []

    def make(worker, actors):
        crews.append(WorkerPool(cluster, some(actors), worker, str(tmp_path)))
        return crews[-1]

    yield make
    for each in crews:
        each.close()


def test_a_pair_of_actors(crew, tmp_path):
    """Results have the order of the pieces, each is made once, and errors arrive as they were."""
    pair = crew(Adder, actors=2)
    pair.equip(1, 100)
    pieces = [(0.3 if number == 0 else 0.0, number) for number in range(12)]
    assert pair.do(pieces) == list(range(100, 112))
    assert sorted(int(f.name.split("-")[0]) for f in tmp_path.iterdir()) == list(range(12))
    with pytest.raises(UserError) as caught:
        pair.do([(0.0, 1), (0.0, -2)])
    assert str(caught.value) == "-2 is negative; give it a positive one"
    pair.equip(2, "text")
    # A mistake of the program is no sentence for the user.
    with pytest.raises(TypeError):
        pair.do([(0.0, 1)])
    assert pair.num_lost == 0


def test_a_piece_that_ends_every_actor_is_given_up_in_one_sentence(crew):
    single = crew(Cursed, actors=1)
    single.equip(1, 0)
    with pytest.raises(UserError, match="the same piece of work ended 3 processes.*lower"):
        single.do([(0.0, 12), (0.0, 13), (0.0, 14)])
    # What comes after it is done all the same.
    assert single.do([(0.0, 14)]) == [14]


def test_an_actor_that_refuses_to_start_says_why(crew):
    with pytest.raises(UserError) as caught:
        crew(Reluctant, actors=1)
    assert str(caught.value) == "this engine is not installed; take another"
