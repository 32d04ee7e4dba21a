"""The release pointers in git: annotated tags in GTO's form, with what they point to inside."""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from posttrain.provenance.git import run_git, said_by
from posttrain.provenance.ledger.location import STATE_DIR
from posttrain.publishing.release.names import Tag, Version, check_name, parse_version
from posttrain.stage.errors import UserError

_RELEASE = re.compile(r"(?P<name>[a-z0-9-]+)@(?P<version>v\d+\.\d+\.\d+)")
_ENVIRONMENT = re.compile(r"(?P<name>[a-z0-9-]+)#(?P<environment>[a-z]+)#(?P<number>\d+)")
_FIELD = re.compile(r"^(?P<key>[a-z0-9-]+): (?P<value>.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Promotion:
    """The number-th time that an environment was given a version."""

    name: str
    environment: str
    number: int
    version: Version
    when: float
    reason: str
    kind: str = ""
    """`promotion` or `rollback`; tags of older versions, and GTO's own, do not say it."""
    actor: str = ""
    """Who did it; of tags that do not say it, as git knows who made the tag."""

    @property
    def tag(self) -> str:
        """The git tag."""
        return f"{self.name}#{self.environment}#{self.number}"


@dataclass(frozen=True)
class _AnnotatedTag:
    """A git tag with the `key: value` lines of its message."""

    ref: str
    commit: str
    when: float
    tagger: str
    fields: Mapping[str, str]


def release_tags(root: Path) -> dict[Tag, str]:
    """Every release that git knows, and the commit that it is of."""
    return {
        Tag(check_name(match["name"]), parse_version(match["version"])): each.commit
        for each in _listed(root)
        if (match := _RELEASE.fullmatch(each.ref))
    }


def release_message(root: Path, tag: Tag) -> Mapping[str, str]:
    """What a release's tag says: the `commit` that it is at, digests of statement and archive."""
    for each in _listed(root):
        if each.ref == str(tag):
            return {**each.fields, "commit": each.commit}
    raise UserError(f"git has no tag {tag}; fetch the tags (git fetch --tags), or see release list")


def promotions(
    root: Path, name: str | None = None, environment: str | None = None
) -> list[Promotion]:
    """The history of environments, oldest first within each environment."""
    # GTO's own tags name no version: there it is the release of the same commit.
    released = {(tag.name, commit): str(tag.version) for tag, commit in release_tags(root).items()}
    found = []
    for each in _listed(root):
        match = _ENVIRONMENT.fullmatch(each.ref)
        if match is None or name not in (None, match["name"]):
            continue
        version = each.fields.get("version") or released.get((match["name"], each.commit))
        if version is not None and environment in (None, match["environment"]):
            found.append(
                Promotion(
                    match["name"],
                    match["environment"],
                    int(match["number"]),
                    parse_version(version),
                    each.when,
                    each.fields.get("reason", ""),
                    each.fields.get("kind", ""),
                    each.fields.get("by") or each.tagger,
                )
            )
    return sorted(found, key=lambda each: (each.name, each.environment, each.number))


def current(root: Path, name: str, environment: str) -> Promotion | None:
    """What an environment points to now."""
    return next(reversed(promotions(root, name, environment)), None)


def write_tag(root: Path, ref: str, commit: str, message: str, *, after: float = 0.0) -> None:
    """Create an annotated tag, which must not exist, with a time later than `after`.

    GTO orders an environment's tags by their time, which git keeps in whole seconds.
    """
    when = max(int(time.time()), int(after) + 1)
    date = {"GIT_COMMITTER_DATE": f"{when} +0000"}
    with _alone(root) as lock:
        order = ("tag", "--annotate", ref, commit, "--message", message)
        done = run_git(root, *order, env=date, keep_open=(lock,))
    if done.returncode:
        raise UserError(f"git did not make the tag {ref}: {said_by(done)}")


def delete_tag(root: Path, ref: str) -> None:
    """Remove a tag, and what a git that was killed left of it; one that is not there is fine."""
    with _alone(root) as lock:
        left = run_git(root, "rev-parse", "--git-path", f"refs/tags/{ref}.lock").stdout.strip()
        (root / left).unlink(missing_ok=True)
        done = run_git(root, "tag", "--delete", ref, keep_open=(lock,))
    if done.returncode and has_tag(root, ref):
        raise UserError(f"git did not delete the tag {ref}: {said_by(done)}; then do this again")


def has_tag(root: Path, ref: str) -> bool:
    """Return whether git has this tag."""
    return run_git(root, "rev-parse", "--verify", "--quiet", f"refs/tags/{ref}").returncode == 0


def _listed(root: Path) -> Iterator[_AnnotatedTag]:
    """Every annotated tag."""
    named = ("refname:strip=2", "*objectname", "creatordate:unix", "tagger", "contents")
    form = "%00".join(f"%({each})" for each in named) + "%01"
    done = run_git(root, "for-each-ref", f"--format={form}", "refs/tags")
    if done.returncode:
        raise UserError(f"{root} is not in a git repository; run git init there")
    for entry in done.stdout.split("\x01"):
        ref, commit, when, tagger, message = [*entry.strip("\n").split("\x00"), *[""] * 4][:5]
        if commit:
            fields = {match["key"]: match["value"] for match in _FIELD.finditer(message)}
            # Git has the time and its zone behind the address.
            who = tagger.rpartition("> ")[0]
            yield _AnnotatedTag(ref, commit, float(when or 0), f"{who}>" if who else "", fields)


@contextmanager
def _alone(root: Path) -> Iterator[int]:
    """The lock under which tags are changed, as a file that git is given open.

    A git whose parent was killed works on. It holds the lock until it has ended, so that the next
    command never takes back what is only now being made.
    """
    # Windows has none, and who only reads tags locks nothing.
    import fcntl

    path = root / STATE_DIR / "release-tags.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield stream.fileno()
