"""A file that a verb writes is whole, or as it was."""

import pytest

from posttrain.cli.files import replacing, write_text
from posttrain.stage.errors import UserError


def test_a_file_is_replaced_whole(tmp_path):
    write_text(tmp_path / "a", "old")
    write_text(tmp_path / "a", "new\n")
    assert [file.name for file in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "new\n"


def write_half(path, fault):
    """A writer that fails in the middle."""
    with replacing(path) as partial:
        partial.write_text("half")
        raise fault


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyError("bug")])
def test_a_fault_leaves_the_old_file_and_nothing_else(tmp_path, fault):
    write_text(tmp_path / "a", "old")
    expected = UserError if isinstance(fault, OSError) else KeyError
    with pytest.raises(expected):
        write_half(tmp_path / "a", fault)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


def test_the_sentence_names_the_file(tmp_path):
    with pytest.raises(UserError, match="cannot write .*nowhere/a: No such file or directory"):
        write_text(tmp_path / "nowhere/a", "x")
