"""The user's profile of Prefect, which `prefect cloud login` and `prefect config set` write.

A run keeps Prefect's own state in the project, and would look for profiles there; it is read here
without an import of Prefect, so that who has none loses no time.
"""

import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from posttrain.stage.errors import first_line, masked

PREFECT_PROFILES = "PREFECT_PROFILES_PATH"
"""Prefect's variable that says where its profiles lie."""
_FILE = "profiles.toml"
_URL = "PREFECT_API_URL"
# What the profile has that Prefect ships; a run starts a server of its own in any case.
_AS_SHIPPED = {"PREFECT_SERVER_EPHEMERAL_ENABLED", "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"}


@dataclass(frozen=True)
class PrefectProfile:
    """Settings of the user's, by Prefect's names, and where they are written."""

    path: Path
    name: str
    settings: Mapping[str, object]

    @property
    def url(self) -> str | None:
        """Address of the API that it names; None where it names none, or a variable does."""
        named = None if _URL in os.environ else self.settings.get(_URL)
        return None if named is None else str(named)

    def __str__(self) -> str:
        return f"profile '{self.name}' of {self.path}"


def active_profile(own: Path) -> PrefectProfile | None:
    """Look up the profile that Prefect would go by, were its state not kept in the project.

    Args:
        own: Prefect's home in the project; profiles that lie there come before the user's.

    Returns:
        The profile; None where there is none, or it says no more than the one that is shipped. Why
        a file is left out is said on standard error.

    """
    path = _place(own)
    if not path.is_file():
        return None
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        _say(f"{path} is left out: it cannot be read as TOML: {first_line(error)}")
        return None
    name = os.environ.get("PREFECT_PROFILE") or str(written.get("active"))
    profiles = written.get("profiles")
    settings = profiles.get(name) if isinstance(profiles, dict) else None
    if not isinstance(settings, dict):
        if "PREFECT_PROFILE" in os.environ:
            _say(f"{path} has no profile '{name}', which PREFECT_PROFILE names")
        return None
    return PrefectProfile(path, name, settings) if settings.keys() - _AS_SHIPPED else None


def say_where(profile: PrefectProfile) -> None:
    """Say that a run goes to the server that a profile names."""
    if profile.url is not None:
        _say(f"this goes to Prefect's server at {masked(profile.url)}, by {profile}")


def _place(own: Path) -> Path:
    if named := os.environ.get(PREFECT_PROFILES):
        return Path(named)
    home = os.environ.get("PREFECT_HOME")
    if home is None and (own / _FILE).is_file():
        return own / _FILE
    return Path(home or "~/.prefect").expanduser() / _FILE


def _say(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)
