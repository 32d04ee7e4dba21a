"""The text of an answer, told while it grows."""

from hypothesis import given
from hypothesis import strategies as st

from posttrain.operations.serving.answers import GrowingText


def decode_bytes(ids):
    return bytes(ids).decode(errors="replace")


def told(data, stop=()):
    growing = GrowingText(decode_bytes, stop)
    return [growing.add(each) for each in data], growing


def test_half_a_letter_is_not_told():
    pieces, _ = told("aß€".encode())
    assert pieces == ["a", "", "ß", "", "", "€"]


def test_what_may_become_a_stop_string_is_held_back():
    pieces, growing = told(b"a##b##", stop=["###", "b##"])
    # `#` and `##` may begin `###`; `b##` ends the text, and is not of it.
    assert pieces == ["a", "", "", "##", "", ""]
    assert growing.finish("a##") == ""


def test_a_stop_string_that_does_not_come_is_told_at_the_end():
    pieces, growing = told(b"ab#", stop=["##"])
    assert (pieces, growing.finish("ab#")) == (["a", "b", ""], "#")


@given(st.text(max_size=12), st.lists(st.text(min_size=1, max_size=3), max_size=2))
def test_the_pieces_are_the_text_before_the_first_stop_string(text, stop):
    ends = [text.find(each) for each in stop if each in text]
    before = text[: min(ends)] if ends else text
    pieces, growing = told(text.encode(), stop)
    assert "".join(pieces) + growing.finish(before) == before
