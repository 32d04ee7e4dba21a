"""`posttrain release verify`, and the options that say whose signature a release must have."""

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.publishing.release.names import Tag


@dataclass(frozen=True)
class Trust:
    """A public key, or an identity that Sigstore vouches for."""

    key: Path | None
    identity: str | None
    issuer: str | None

    def verify(self, path: Path, *, expect: "Tag | None" = None) -> list[str]:
        """Everything that is wrong with the release at `path`."""
        from posttrain.publishing.release.verify import verify_path

        found, proven = self.signed_by(path)
        return verify_path(path, found, expect=expect, proven=proven)

    def signed_by(self, path: Path) -> tuple[Any, tuple[str, ...]]:
        """The key that the release at `path` must be signed with, and files proven besides."""
        from posttrain.publishing.release import keyless, keys
        from posttrain.publishing.release.contents import BUNDLE, open_contents

        if self.identity is None:
            if self.issuer is not None:
                raise UserError("--issuer belongs to --identity; give both, or a --key")
            return keys.load_public(self.key or keys.public_path()), ()
        if self.key is not None or self.issuer is None:
            raise UserError("give --identity together with --issuer, and no --key besides")
        who = keyless.Identity(self.identity, self.issuer)
        return keyless.key_inside(open_contents(path), keyless.Sigstore(), who), (BUNDLE,)


def trust_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --key, --identity and --issuer, as one `trust`."""

    @functools.wraps(command)
    def trusting(
        *given: Any, key: Path | None, identity: str | None, issuer: str | None, **named: Any
    ) -> None:
        command(*given, trust=Trust(key, identity, issuer), **named)

    options = (
        click.option(
            "--key",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Public key of whoever signed [default: your own].",
        ),
        click.option("--identity", metavar="ADDRESS", help="Who signed, where it was keyless."),
        click.option("--issuer", metavar="URL", help="Who vouches for that identity."),
    )
    found: Callable[..., None] = trusting
    for option in reversed(options):
        found = option(found)
    return found


@click.command()
@click.argument("target", metavar="TAG|FOLDER|ARCHIVE")
@trust_options
@click.option("--expect", metavar="NAME@VERSION", help="It must be this release and no other.")
@click.option("--packages", is_flag=True, help="Compare the installed packages, file by file, too.")
def verify(target: str, expect: str | None, packages: bool, trust: Trust) -> None:
    """Check every byte, claim, link and signature with a public key; exits with 1 on a finding.

    A tag is looked up in git; its archive comes from the project, the DVC cache or a DVC remote.
    With --packages what is installed here is compared with the release's lock besides, and
    every file of it is hashed: some ten seconds.
    """
    from posttrain.publishing.release.fetch import located
    from posttrain.publishing.release.names import parse_tag

    findings, other = list[str](), list[str]()
    for path, tag, pointed in located(target):
        wanted = parse_tag(expect) if expect else tag
        findings += [*pointed, *trust.verify(path, expect=wanted)]
        if not findings:
            click.echo(f"{path}: every byte, claim, link and signature holds")
    if packages and not findings:
        other = _compare_packages(path)
        findings += other
        click.echo(f"packages: {'other ones' if other else 'all are the locked ones'}")
    for finding in findings:
        word = "differs" if finding in other else "altered"
        click.echo(f"{click.style(word, fg='red')}  {finding}", err=True)
    if findings:
        sys.exit(1)


def _compare_packages(path: Path) -> list[str]:
    """How this environment is not the one that the release at `path` was made in."""
    import json

    from posttrain.publishing.release.contents import EVIDENCE, open_contents
    from posttrain.publishing.release.environment import (
        altered_files,
        differences,
        environment_lock,
    )

    lock = json.loads(open_contents(path).read(f"{EVIDENCE}/environment.json"))
    return [*differences(lock, environment_lock()), *altered_files(lock)]
