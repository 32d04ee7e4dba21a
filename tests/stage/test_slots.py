"""Parts, slots and plug-ins: what a recipe may name, and what it is told when it cannot."""

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Literal

import pytest

from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.identity import identity
from posttrain.stage.slots import InSlot, Part, Slot, parts_in, parts_of_modules, plugged


class Shape(Part):
    """A thing with an area."""

    def area(self) -> float:
        raise NotImplementedError


class Square(Shape):
    """A square."""

    kind: Literal["square"] = "square"
    side: float = 1.0

    def area(self) -> float:
        return self.side**2


class Odd(Square):
    """Not shipped."""

    kind: Literal["odd"] = "odd"


class Strip(Shape):
    """A strip of width one."""

    DEFAULTS_VERSION = 2
    kind: Literal["strip"] = "strip"
    length: float
    threads: int = 1
    MECHANICS = frozenset({"threads"})

    def area(self) -> float:
        return self.length


SHAPES = Slot("shape", Shape, {"square": Square, "strip": Strip})


class Board(StageConfig):
    """A config with a slot of each form."""

    one: Annotated[Shape, InSlot(SHAPES)] = Square()
    many: dict[str, Annotated[Shape, InSlot(SHAPES)]] = {}


def test_a_part_is_a_kind_or_a_mapping_with_one():
    assert Board.parse({"one": "square"}, where="s").one == Square()
    board = Board.parse({"many": {"a": {"kind": "strip", "length": 3}}}, where="s")
    assert board.many["a"].area() == 3
    assert [type(part) for part in parts_in(board)] == [Square, Strip]


def test_a_dump_holds_the_fields_of_the_part_and_parses_again():
    board = Board.parse({"one": {"kind": "strip", "length": 2}}, where="s")
    dumped = board.model_dump(mode="json")
    assert dumped["one"] == {"kind": "strip", "length": 2.0, "threads": 1}
    assert Board.parse(dumped, where="s") == board


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            "sqare",
            "s.one: there is no shape 'sqare'; did you mean 'square'? If a plug-in offers 'sqare',"
            " name its module under `plugins`",
        ),
        ({"kind": "square", "sied": 2}, "s.one.sied: unknown key; did you mean 'side'?"),
        ({"kind": "strip"}, "s.one.length: a value is required here"),
        (
            3,
            "s.one: write the kind of shape, such as 'square', or a mapping with `kind` and its"
            " settings; got 3",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(value, sentence):
    with pytest.raises(UserError) as error:
        Board.parse({"one": value}, where="s")
    assert str(error.value) == sentence


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A module `mine_shapes` with a part of its own."""
    (tmp_path / "mine_shapes.py").write_text(
        "from typing import Literal\n"
        "from posttrain.stage.slots import Part\n"
        "class Base(Part):\n    '''Not of the slot.'''\n"
        "PARTS = {'shape': {'odd': Base}}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "mine_shapes"
    sys.modules.pop("mine_shapes", None)


def test_a_plugin_is_found_only_while_it_is_in_force(plugin):
    with pytest.raises(UserError, match="there is no shape 'odd'"):
        Board.parse({"one": "odd"}, where="s")
    with plugged([plugin]):
        assert Board.parse({"one": "square"}, where="s").one == Square()
        assert plugin not in sys.modules
        with pytest.raises(UserError, match="which does not derive from .*Shape; derive"):
            Board.parse({"one": "odd"}, where="s")
        assert plugin in sys.modules
        with plugged(lambda: {"shape": {"odd": Odd}}), ThreadPoolExecutor(1) as other:
            parsed = other.submit(Board.parse, {"one": "odd"}, where="s")
            assert parsed.result().one == Odd()
    with pytest.raises(UserError, match="there is no shape 'odd'"):
        Board.parse({"one": "odd"}, where="s")


def test_a_plugin_that_is_not_there_is_one_sentence():
    sentence = "plugins: the module 'nowhere_at_all' is not there"
    with pytest.raises(UserError, match=sentence):
        parts_of_modules(["nowhere_at_all"])


def test_a_slot_whose_registry_is_not_imported_is_one_sentence():
    class Named(StageConfig):
        one: Annotated[Shape, InSlot("shpae")] = Square()
        two: Annotated[Shape, InSlot("shape")] = Square()

    assert Named.parse({"two": "square"}, where="s").two == Square()
    sentence = "s.one: the registry of the slot 'shpae' is not imported; did you mean 'shape'?; imp"
    with pytest.raises(UserError) as error:
        Named.parse({"one": "square"}, where="s")
    assert str(error.value).startswith(sentence)


def test_an_identity_names_what_is_not_at_its_default():
    assert identity(Board()) == {}
    assert identity(Square()) == {"kind": "square"}
    strip = Strip(length=2, threads=8)
    assert identity(Board(one=strip)) == {"one": {"kind": "strip@2", "length": 2.0}}
    # Equal but for mechanics: equal mathematics.
    assert identity(Strip(length=2)) == identity(strip)


def test_a_kind_that_a_plugin_offers_for_another_slot_is_a_hint():
    said = r"there is no shape 'round'; the PARTS of `plugins` offer it for the slot 'ball'"
    with plugged(lambda: {"ball": {"round": Square}}), pytest.raises(UserError, match=said):
        Board.parse({"one": "round"}, where="s")
