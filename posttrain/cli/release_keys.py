"""`posttrain release keys`, and the options that say who signs and whose signature is expected."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli.options import DocumentedGroup
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

    from posttrain.publishing.release.keyless import Notary
    from posttrain.publishing.release.names import Tag


@click.group(cls=DocumentedGroup)
def keys() -> None:
    """Make and show the key pair of releases.

    The private key never leaves its file: it is not logged and not released.
    """


@keys.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to write [default: $POSTTRAIN_KEYS or ~/.config/posttrain/keys].",
)
def init(folder: Path | None) -> None:
    """Write a new Ed25519 pair, outside of any repository.

    Set POSTTRAIN_KEY_PASSPHRASE to encrypt the private key; signing then needs it too.
    """
    from posttrain.publishing.release.keys import key_folder, make_pair

    private, public = make_pair(folder or key_folder())
    click.echo(f"private key (readable by you alone, keep a copy): {private}")
    click.echo(f"public key (give it to whoever verifies): {public}")


@keys.command()
@click.option("--key", type=click.Path(path_type=Path, dir_okay=False), help="A public key file.")
def show(key: Path | None) -> None:
    """Print the id of a public key, which every signature names."""
    from posttrain.publishing.release.keys import load_public, public_path

    path = key or public_path()
    click.echo(f"{load_public(path).keyid}  {path}")


def choose_signer(key: Path | None, sign: str) -> "tuple[CryptoSigner, Notary | None]":
    """Who signs, and who certifies it; refused before any gate is asked."""
    from posttrain.publishing.release import keyless, keys

    if sign == "key":
        return keys.load_signer(key or keys.private_path()), None
    if key is not None:
        raise UserError("--sign keyless takes no --key; leave one of them out")
    keys.require_packages()
    keyless.identity_token()
    return keyless.one_time_signer(), keyless.Sigstore()


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
    """Give a command the options that make a `Trust`: --key, --identity and --issuer."""
    options = (
        click.option("--issuer", metavar="URL", help="Who vouches for that identity."),
        click.option("--identity", metavar="ADDRESS", help="Who signed, where it was keyless."),
        click.option(
            "--key",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Public key of whoever signed [default: your own].",
        ),
    )
    for option in options:
        command = option(command)
    return command
