"""`posttrain.load` of a release, whose project has gone on since."""

import polars as pl
import pytest

import posttrain as pt

pytestmark = pytest.mark.slow  # two releases are made first


@pytest.fixture
def project(released, tmp_path, monkeypatch):
    """A copy of the project in which two releases were made."""
    copy = released.project.copy(tmp_path / "project")
    monkeypatch.chdir(copy.root)
    monkeypatch.syspath_prepend(copy.root)
    return copy


def test_a_release_is_loaded_as_it_was_made(project, released):
    now = pt.load("sft.curve")
    first = pt.load("sft.curve", release="mini@v1.0.0")
    # Two steps in the first release, three since.
    assert (first["step"].n_unique(), now["step"].n_unique()) == (2, 3)
    assert pt.load("sft.curve", release="1.1.0").equals(now)
    assert pt.load("sft.policy", release="v1.0.0", format="path") == (
        project.root / released.first.relative_to(released.project.root)
    )


def test_rows_of_a_release_are_chosen_and_its_model_is_one(project):
    held_out = pt.load("synthesize.heldout", release="v1.0.0", where="difficulty > 0")
    assert isinstance(held_out, pl.DataFrame)
    assert 0 < held_out.height <= 24
    model = pt.load("sft.policy", release="v1.0.0", format="torch")
    assert model.config.hidden_size == 16


def test_what_a_release_has_not_is_said(project):
    with pytest.raises(pt.UserError, match=r"there is no release v9.0.0; see posttrain release"):
        pt.load("sft.curve", release="v9.0.0")
    with pytest.raises(pt.UserError, match=r"release mini@v1.0.0 has no 'sft.curv'; did you mean"):
        pt.load("sft.curv", release="v1.0.0")
