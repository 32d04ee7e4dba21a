"""Publishing: by rename, whole or not at all."""

import pytest

from posttrain.pipeline.execution.publish import discard, prepare, publish
from posttrain.stage.errors import UserError


def stage_outputs(tmp_path):
    """A staged file and a staged directory, with final places that hold older ones."""
    final = {"table": tmp_path / "data/table.parquet", "model": tmp_path / "data/model"}
    staged = prepare(tmp_path / "staging", final)
    staged["table"].write_text("new")
    staged["model"].mkdir()
    (staged["model"] / "weights").write_text("new")
    return staged, final


def test_outputs_replace_what_was_there_and_nothing_of_the_old_remains(tmp_path):
    staged, final = stage_outputs(tmp_path)
    final["model"].mkdir(parents=True)
    (final["model"] / "stale").write_text("old")
    final["table"].write_text("old")
    publish(staged, final)
    discard(tmp_path / "staging")
    assert final["table"].read_text() == "new"
    assert [path.name for path in final["model"].iterdir()] == ["weights"]
    assert not (tmp_path / "staging").exists()


def test_a_missing_staged_output_leaves_the_old_one_in_place(tmp_path):
    staged, final = stage_outputs(tmp_path)
    final["table"].parent.mkdir(parents=True)
    final["table"].write_text("old")
    staged["table"].unlink()
    with pytest.raises(FileNotFoundError):
        publish(staged, final)
    assert final["table"].read_text() == "old"


def test_a_symbolic_link_in_the_place_of_an_output_is_refused(tmp_path):
    staged, final = stage_outputs(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    final["table"].parent.mkdir(parents=True)
    final["table"].symlink_to(elsewhere)
    with pytest.raises(UserError, match="is a symbolic link"):
        publish(staged, final)
    assert elsewhere.read_text() == "precious"


def test_prepare_starts_from_an_empty_folder(tmp_path):
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging/leftover").write_text("of a killed attempt")
    staged = prepare(tmp_path / "staging", {"a": tmp_path / "data/a.json"})
    assert list((tmp_path / "staging").iterdir()) == []
    assert staged == {"a": tmp_path / "staging/a.json"}
