"""What releases are called: `NAME@vX.Y.Z`, and where a project keeps them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from posttrain.stage.errors import UserError

ENVIRONMENTS = ("staging", "prod")
# What each level of reproducibility promises of a rebuild, strictest first.
RULES: Mapping[str, str] = {
    "L0": "every output of every stage has the same digest, on this kind of processor",
    "L1": "every output of every stage has the same digest, on this model of GPU",
    "L2": "every learner, given the stored rollouts and starting policy, ends at the same weights; "
    "and the figures of the DAG, run once more, agree with the released ones",
    "L3": "the released figures are ones that the rebuilt seeds could have given",
}
LEVELS = tuple(RULES)
# Levels at which the same bytes are promised; at the others the same figures are.
BITWISE = ("L0", "L1")
FOLDER = "releases"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, order=True)
class Version:
    """Major, minor and patch."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"v{self.major}.{self.minor}.{self.patch}"


@dataclass(frozen=True)
class Tag:
    """A release's name and version; its text is the git tag, in GTO's form."""

    name: str
    version: Version

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    def folder(self, root: Path) -> Path:
        """The release as a folder."""
        return root / FOLDER / self.name / str(self.version)

    def archive(self, root: Path) -> Path:
        """The release as one file."""
        return root / FOLDER / self.name / f"{self.name}-{self.version}.tar"


def parse_version(text: str) -> Version:
    """`1.2.0` or `v1.2.0`."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise UserError(f"'{text}' is no version; write it as 1.2.0 or v1.2.0")
    return Version(*(int(part) for part in match.groups()))


def parse_tag(text: str) -> Tag:
    """`NAME@VERSION`."""
    name, at, version = text.partition("@")
    if not at:
        raise UserError(f"'{text}' has no version; write it as {text}@v1.0.0")
    return Tag(check_name(name), parse_version(version))


def check_name(name: str) -> str:
    """`name` if git, GTO and MLflow all take it."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"'{name}' is no name of a release; use small letters, digits and single dashes, "
            "such as math-policy"
        )
    return name


def choose_tag(text: str, taken: Iterable[Tag]) -> Tag:
    """The tag that `NAME` or `NAME@VERSION` asks for: without a version the next minor one."""
    if "@" in text:
        return parse_tag(text)
    name = check_name(text)
    versions = sorted(tag.version for tag in taken if tag.name == name)
    if not versions:
        return Tag(name, Version(0, 1, 0))
    return Tag(name, Version(versions[-1].major, versions[-1].minor + 1, 0))
