"""One run, released and altered: what a change must not break; the rest takes two releases."""

import sys

import pytest

from posttrain.publishing.release import keys
from posttrain.publishing.release.names import parse_tag
from posttrain.publishing.release.verify import verify_path


@pytest.fixture
def project(start_project, tmp_path):
    """A project that ran once, so that its gates look at one seed."""
    saved = list(sys.path)
    keys.make_pair(tmp_path / "keys")
    made = start_project(tmp_path / "project", tmp_path / "keys")
    made.edit("seeds: 2", "seeds: 1")
    made.run()
    made.commit("first")
    yield made
    sys.path[:] = saved


def test_what_was_run_is_released_verifies_and_is_named_where_a_byte_is_altered(project):
    made = project.create("mini")
    public = keys.load_public(project.keys / "release.pub")
    # The first version there is.
    assert made.tag == parse_tag("mini@v0.1.0")
    assert project.git("tag").split() == ["mini@v0.1.0"]
    for path in (made.folder, made.archive):
        assert verify_path(path, public, expect=made.tag) == []
    weights = made.folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    (found,) = verify_path(made.folder, public)
    assert found.startswith("model.safetensors: its bytes were altered")
    weights.write_bytes(whole)
    assert verify_path(made.folder, public) == []
