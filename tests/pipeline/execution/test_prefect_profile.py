"""The user's profile of Prefect is read without an import of it, or left out with a reason."""

import os
from pathlib import Path

import pytest

from posttrain.pipeline.execution import prefect
from posttrain.pipeline.execution.prefect_profile import PREFECT_PROFILES, active_profile

CLOUD = 'active = "cloud"\n[profiles.cloud]\nPREFECT_API_URL = "https://me:secret@there/api"\n'


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The user's folder, without a word on Prefect in the environment."""
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", dict(os.environ) | {"HOME": str(tmp_path)})
    (tmp_path / ".prefect").mkdir()
    (tmp_path / "state").mkdir()
    return tmp_path


def write(home, text, folder=".prefect"):
    place = home / folder / "profiles.toml"
    place.parent.mkdir(exist_ok=True)
    place.write_text(text)
    return place


def test_the_profile_that_a_login_wrote_is_prefects(home, capsys):
    place = write(home, CLOUD)
    prefect.configure(home / "state")
    assert os.environ[PREFECT_PROFILES] == str(place)
    # Prefect's own state stays in the project, and it is Prefect that reads the rest of it.
    assert os.environ["PREFECT_HOME"] == str(home / "state/prefect")
    assert "PREFECT_API_URL" not in os.environ
    assert prefect._begin_server() is None
    said = capsys.readouterr().err
    assert said.startswith("note: this goes to Prefect's server at https://")
    assert f"profile 'cloud' of {place}" in said
    assert "secret" not in said


def test_a_setting_of_the_profile_stays(home):
    write(home, 'active = "mine"\n[profiles.mine]\nPREFECT_LOGGING_LEVEL = "DEBUG"\n')
    prefect.configure(home / "state")
    assert "PREFECT_LOGGING_LEVEL" not in os.environ
    assert os.environ["PREFECT_LOGGING_SERVER_LEVEL"] == "CRITICAL"


@pytest.mark.parametrize(
    "text",
    [
        'active = "ephemeral"\n[profiles.ephemeral]\nPREFECT_SERVER_EPHEMERAL_ENABLED = "true"\n',
        'active = "gone"\n[profiles.cloud]\nPREFECT_API_URL = "https://there/api"\n',
        "[profiles]\n",
    ],
)
def test_one_that_says_nothing_costs_nothing(home, text, monkeypatch, capsys):
    write(home, text)
    begun = []
    monkeypatch.setattr(prefect, "TemporaryServer", lambda place, seconds: begun.append(place))
    monkeypatch.delitem(prefect.sys.modules, "prefect", raising=False)
    monkeypatch.chdir(home)
    prefect.configure(home / "state")
    prefect._begin_server()
    assert begun == [home / "state/prefect"]
    assert capsys.readouterr().err == ""


def test_what_cannot_be_read_is_said(home, capsys):
    place = write(home, "active = \n")
    assert active_profile(home / "state/prefect") is None
    assert capsys.readouterr().err.startswith(f"note: {place} is left out: it cannot be read as")


def test_a_profile_that_is_asked_for_and_not_there_is_said(home, capsys):
    place = write(home, CLOUD)
    os.environ["PREFECT_PROFILE"] = "claud"
    assert active_profile(home / "state/prefect") is None
    said = f"note: {place} has no profile 'claud', which PREFECT_PROFILE names\n"
    assert capsys.readouterr().err == said


def test_whose_profile_counts(home):
    users, own = write(home, CLOUD), home / "state/prefect"
    assert active_profile(own).path == users
    projects = write(home, CLOUD, "state/prefect")
    assert active_profile(own).path == projects
    os.environ["PREFECT_HOME"] = str(home / ".prefect")
    assert active_profile(own).path == users
    elsewhere = write(home, CLOUD, "elsewhere")
    os.environ[PREFECT_PROFILES] = str(elsewhere)
    assert active_profile(own).path == Path(elsewhere)


def test_a_variable_comes_before_the_profiles_address(home, capsys):
    write(home, CLOUD)
    os.environ["PREFECT_API_URL"] = "http://127.0.0.1:4200/api"
    prefect.configure(home / "state")
    assert capsys.readouterr().err == ""
