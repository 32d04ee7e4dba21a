"""`posttrain release keys`: the pair that signs and verifies."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

    from posttrain.publishing.release.keyless import Notary


@click.group(epilog="The private key never leaves its file: it is not logged and not released.")
def keys() -> None:
    """Make and show the key pair of releases."""


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
    """Who signs, and who certifies it; refused before anything is judged."""
    from posttrain.publishing.release import keyless, keys

    if sign == "key":
        return keys.load_signer(key or keys.private_path()), None
    if key is not None:
        raise UserError("--sign keyless takes no --key; leave one of them out")
    keys.check_library()
    keyless.check_identity()
    return keyless.one_time_signer(), keyless.Sigstore()
