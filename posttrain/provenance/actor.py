"""Who does it: the person at the keyboard as git knows them, or for whom a service works.

It is recorded of runs, releases, promotions, recalls and reviews, and is part of no stage's key.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from posttrain.provenance.git import ask_git

ACTOR = "POSTTRAIN_ACTOR"
"""Variable that names who it is; it comes before all else."""
_LONGEST = 200
# Where the first is set, the others name who asked the service for it; its own git is a robot's.
_SERVICES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "GITHUB_ACTIONS": ("GitHub Actions", ("GITHUB_TRIGGERING_ACTOR", "GITHUB_ACTOR")),
    "GITLAB_CI": ("GitLab CI", ("GITLAB_USER_LOGIN", "GITLAB_USER_EMAIL")),
    "CIRCLECI": ("CircleCI", ("CIRCLE_USERNAME",)),
    "BUILDKITE": ("Buildkite", ("BUILDKITE_BUILD_CREATOR",)),
    "TF_BUILD": ("Azure Pipelines", ("BUILD_REQUESTEDFOR",)),
}
_IDENTITY = re.compile(r"(?P<who>[^<]+ <[^>]+>) \d+ [+-]\d{4}")


def actor_at(root: Path) -> str | None:
    """Name who works in a project.

    Args:
        root: The project.

    Returns:
        What POSTTRAIN_ACTOR says; `login (service)` where a service of continuous integration
        works for somebody; `Name <address>` as git has it; None where nobody said.

    """
    if stated := _one_line(os.environ.get(ACTOR, "")):
        return stated
    for mark, (service, names) in _SERVICES.items():
        logins = [_one_line(os.environ.get(name, "")) for name in names]
        if os.environ.get(mark) and any(logins):
            return f"{next(filter(None, logins))} ({service})"
    # Without that setting git makes up an address of login and host.
    identity = ask_git(root, "-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT")
    known = _IDENTITY.fullmatch(identity or "")
    return _one_line(known["who"]) if known else None


def person(actor: str | None) -> str:
    """Name somebody without the address, which is for who asks the ledger.

    >>> person("Ada Lovelace <ada@example.org>"), person(None)
    ('Ada Lovelace', '')

    Args:
        actor: As the ledger has it; None where nobody said.

    Returns:
        The name; empty where nobody said.

    """
    return (actor or "").partition(" <")[0]


def _one_line(text: str) -> str:
    """A name without what a terminal or a page would obey."""
    line = "".join(each if each.isprintable() else " " for each in text)
    return " ".join(line.split())[:_LONGEST]
