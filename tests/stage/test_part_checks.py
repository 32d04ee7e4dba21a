"""What is said of a part that cannot work: before anything runs, with file and method."""

from functools import cache, cached_property, partialmethod
from typing import ClassVar, Literal

import pytest

from posttrain.pipeline.slots import SLOTS, find_slot
from posttrain.stage.part_checks import complaint_about, where_it_failed
from posttrain.stage.slots import Part, Slot

ONE_OF = ("weigh", "weigh_all")
HERE = "tests/stage/test_part_checks.py"


class Scale(Part):
    """The base of a slot."""

    def weigh(self, thing: str, *, grams: bool, digits: int = 2) -> float:
        raise NotImplementedError

    def weigh_all(self, things: list[str]) -> list[float]:
        return [self.weigh(thing, grams=True) for thing in things]

    @property
    def limit(self) -> float:
        return 1.0

    @classmethod
    def maker(cls) -> str:
        return ""


class Kitchen(Scale):
    kind: Literal["kitchen"] = "kitchen"

    def weigh(self, item, *, grams, digits=2, twice=False):
        return 1.0


class Truck(Scale):
    kind: Literal["truck", "lorry"] = "truck"

    def weigh_all(self, *things):
        return []


class Cached(Scale):
    kind: Literal["cached"] = "cached"
    weigh_all = partialmethod(len)

    @cache  # noqa: B019 - the object of a config, which lives as long as its process
    def weigh(self, thing, *, grams, digits=2):
        return 1.0

    @cached_property
    def limit(self):
        return 2.0

    @classmethod
    @cache
    def maker(cls):
        return "cached"


class Constant(Kitchen):
    limit: ClassVar[float] = 2.0


class Lazy(Scale):
    kind: Literal["lazy"] = "lazy"


class Mistyped(Scale):
    kind: Literal["mistyped"] = "mistyped"

    def weight(self, thing, *, grams, digits=2):
        return 1.0


class Narrow(Scale):
    kind: Literal["narrow"] = "narrow"

    def weigh(self, thing, *, grams):
        return 1.0


class Greedy(Scale):
    kind: Literal["greedy"] = "greedy"

    def weigh(self, thing, *, grams, digits):
        return 1.0


class Hasty(Scale):
    kind: Literal["hasty"] = "hasty"

    def weigh(self, thing, *, grams, digits=2):
        return 1.0

    def limit(self):
        return 2.0


class Bound(Scale):
    kind: Literal["bound"] = "bound"

    def weigh_all(self, things):
        return []

    def maker(self):
        return ""


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("kitchen", Kitchen),
        ("truck", Truck),
        ("lorry", Truck),
        ("cached", Cached),
        ("kitchen", Constant),
    ],
)
def test_a_part_that_can_be_called_as_its_base_is_right(kind, part):
    assert complaint_about(part, kind, Scale, ONE_OF) is None


@pytest.mark.parametrize(
    ("kind", "part", "sentence"),
    [
        (
            "lazy",
            Lazy,
            "which does not implement weigh(thing, *, grams, digits=2) or weigh_all(things);"
            " write one of them",
        ),
        (
            "mistyped",
            Mistyped,
            "which does not implement weigh(thing, *, grams, digits=2) or weigh_all(things);"
            " rename its weight",
        ),
        (
            "narrow",
            Narrow,
            "whose weigh takes other arguments; define it as weigh(thing, *, grams, digits=2)",
        ),
        (
            "greedy",
            Greedy,
            "whose weigh takes other arguments; define it as weigh(thing, *, grams, digits=2)",
        ),
        ("hasty", Hasty, "whose limit is no property; write it as in Scale"),
        ("bound", Bound, "whose maker is no classmethod; write it as in Scale"),
        (
            "other",
            Kitchen,
            'whose `kind` is not \'other\'; write kind: Literal["other"] = "other" in it',
        ),
    ],
)
def test_what_is_wrong_is_said_with_file_and_method(kind, part, sentence):
    slot = Slot("scale", Scale, {}, ONE_OF)
    said = slot.complaint(kind, part)
    assert said is not None
    assert said.startswith(f"scale.{kind} is {part.__name__} in ")
    assert said.endswith(f"{HERE}, {sentence}")


def test_what_is_no_class_of_the_slot_is_refused():
    for thing in (Part, 3, {"a": 1}):
        assert complaint_about(thing, "x", Scale).endswith(
            f"does not derive from {__name__}.Scale; derive it from that"
        )


@pytest.mark.parametrize("name", SLOTS)
def test_every_part_that_ships_would_pass(name):
    slot = find_slot(name)
    assert slot.one_of
    assert all(callable(getattr(slot.base, method)) for method in slot.one_of)
    assert [slot.complaint(kind, part) for kind, part in slot.parts.items()] == [
        None for _ in slot.parts
    ]
    empty = type("Empty", (slot.base,), {"__module__": __name__, "__doc__": "Nothing."})
    assert f"implement {slot.one_of[0]}(" in slot.complaint("x", empty)


def test_an_error_is_placed_in_the_code_outside_of_libraries(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("import json\n\njson.loads('[')\n")
    with pytest.raises(ValueError, match="Expecting") as caught:
        exec(compile(file.read_text(), file, "exec"), {})  # noqa: S102 - as an import does
    frames = caught.value.with_traceback(caught.tb.tb_next)
    assert where_it_failed(frames).endswith(f"({file}:3)")
    with pytest.raises(SyntaxError) as broken:
        compile("a = (\n", str(file), "exec")
    assert where_it_failed(broken.value) == f"SyntaxError: '(' was never closed ({file}:1)"


def test_a_part_in_place_of_its_class_is_told_so():
    said = complaint_about(Kitchen(), "kitchen", Scale, ONE_OF)
    assert said.endswith("which is no class; give the class itself, without parentheses")
