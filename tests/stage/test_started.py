"""What a part starts is checked at once, and an error is traced to the part that raised it."""

import contextlib
import inspect
from typing import Literal

import pytest

from posttrain.learning.curriculum.base import ProblemSampler, ProblemStream, WeightedStream
from posttrain.learning.curriculum.registry import PROBLEM_SAMPLERS
from posttrain.learning.rl.producers.base import Producer, Production, start_producer
from posttrain.learning.rl.producers.registry import PRODUCERS
from posttrain.stage.errors import UserError
from posttrain.stage.started import started, traced

HERE = "tests/stage/test_started.py"
ANOTHER = (
    "let it give an object of a class derived from posttrain.learning.curriculum.base.ProblemStream"
)
DRAW = "draw(count, *, seed, step, without=())"


class Mine(ProblemSampler):
    kind: Literal["mine"] = "mine"
    sizes: tuple[int, ...] = (1, 2)

    def share(self, number):
        return [
            _half(each)
            for each in [number, *self.sizes]
        ]  # fmt: skip

    @contextlib.contextmanager
    def open(self):
        yield


class Whole(ProblemStream):
    def draw(self, count, *, seed, step, without=()):
        return {}[count]


class Mistyped(ProblemStream):
    def draws(self, count, *, seed, step, without=()):
        return []


class Narrow(ProblemStream):
    def draw(self, count, seed):
        return []


class Weightless(WeightedStream):
    pass


class Lazy(Production):
    pass


class Foreign:
    def draw(self, count, *, seed, step, without=()):
        return []

    def __repr__(self):
        return "a foreign object"


def _half(number):
    return 1 / number


def line_of(text):
    """Number of the first line of this file that contains a text."""
    lines = inspect.getsource(inspect.getmodule(_half)).splitlines()
    return 1 + next(place for place, line in enumerate(lines) if text in line)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Mistyped(), f"Mistyped in {HERE}, which does not implement {DRAW}; rename its draws"),
        (Narrow(), f"Narrow in {HERE}, whose draw takes other arguments; define it as {DRAW}"),
        (Weightless([]), f"Weightless in {HERE}, which does not implement weights(); write it"),
        (Foreign(), f"a foreign object; {ANOTHER}"),
        (None, f"None; {ANOTHER}"),
    ],
)
def test_what_a_sampler_starts_is_refused_where_it_cannot_draw(made, said):
    with pytest.raises(UserError) as caught:
        started(Mine(), made, ProblemStream, where="rl")
    assert str(caught.value) == f"rl: problem_sampler.mine: `start` gave {said}"


def test_what_a_producer_starts_is_refused_where_it_does_not_produce():
    class Idle(Producer):
        kind: Literal["idle"] = "idle"

        def start(self, bench):
            return Lazy()

    with pytest.raises(UserError) as caught:
        start_producer(Idle(), None)
    wanted = "produce(problems, prompts, at); write it"
    said = f"rl: producer.idle: `start` gave Lazy in {HERE}, which does not implement {wanted}"
    assert str(caught.value) == said


def test_what_is_whole_is_given_back():
    assert PROBLEM_SAMPLERS.base is ProblemSampler
    assert PRODUCERS.base is Producer
    stream = Whole()
    assert started(Mine(), stream, ProblemStream, where="rl") is stream


def test_an_error_is_traced_to_the_innermost_line_of_the_parts_own_file():
    with pytest.raises(ZeroDivisionError) as caught:
        Mine().share(0)
    place = f"{HERE}:{line_of('return 1 / number')}"
    said = f"problem_sampler.mine raised ZeroDivisionError: division by zero ({place})"
    assert traced(caught.value) == said


def test_an_error_of_what_a_part_started_is_its_own():
    stream = started(Mine(), Whole(), ProblemStream, where="rl")
    with pytest.raises(KeyError) as caught:
        stream.draw(3, seed=0, step=0)
    place = f"{HERE}:{line_of('return {}[count]')}"
    assert traced(caught.value) == f"problem_sampler.mine raised KeyError: 3 ({place})"
    with pytest.raises(KeyError) as caught:
        Whole().draw(3, seed=0, step=0)
    assert traced(caught.value) == "KeyError: 3"


def test_what_goes_wrong_while_a_part_is_open_is_not_its_doing():
    with pytest.raises(ZeroDivisionError) as caught, Mine().open():
        _half(0)
    assert traced(caught.value) == "ZeroDivisionError: division by zero"
