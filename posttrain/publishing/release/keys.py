"""Key pairs: made outside of any repository, read for signing and for verifying."""

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.stage.errors import UserError
from posttrain.stage.extras import extra_line

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, SSlibKey

PASSPHRASE = "POSTTRAIN_KEY_PASSPHRASE"
KEY_FOLDER = "POSTTRAIN_KEYS"
# What the extras of posttrain bring that releases are made with.
_PACKAGES = {
    "release": ("cyclonedx", "in_toto_attestation", "securesystemslib"),
    "keyless": ("sigstore",),
}
_PRIVATE, _PUBLIC = "release.key", "release.pub"


def key_folder() -> Path:
    """Where keys are kept: $POSTTRAIN_KEYS, or the user's configuration folder."""
    named = os.environ.get(KEY_FOLDER)
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(named) if named else Path(config) / "posttrain" / "keys"


def private_path() -> Path:
    """The private key that signs where none is named."""
    return key_folder() / _PRIVATE


def public_path() -> Path:
    """The public key that verifies where none is named."""
    return key_folder() / _PUBLIC


def make_pair(folder: Path) -> tuple[Path, Path]:
    """Write a new Ed25519 pair, the private key readable by its owner alone; paths of both.

    The passphrase in $POSTTRAIN_KEY_PASSPHRASE encrypts the private key where it is set.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private, public = folder / _PRIVATE, folder / _PUBLIC
    if repository := _repository(folder):
        raise UserError(
            f"{folder} is inside the git repository {repository}, where a private key is soon "
            "committed; give --folder outside of it"
        )
    for path in (private, public):
        if path.exists():
            raise UserError(f"{path} exists; move that pair away first, or give another --folder")
    key = Ed25519PrivateKey.generate()
    secret = os.environ.get(PASSPHRASE)
    encryption = (
        serialization.BestAvailableEncryption(secret.encode())
        if secret
        else serialization.NoEncryption()
    )
    pem = serialization.Encoding.PEM
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, encryption))
    public.write_bytes(
        key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


def load_signer(path: Path) -> "CryptoSigner":
    """The signer of a private key file that no other user may read."""
    require_packages()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.signer import CryptoSigner

    data = _read(path, "posttrain release keys init makes a pair")
    if path.stat().st_mode & 0o077:
        raise UserError(f"{path} can be read by others; chmod 600 {path}")
    secret = os.environ.get(PASSPHRASE)
    try:
        key = load_pem_private_key(data, secret.encode() if secret else None)
        return CryptoSigner(key)
    except (ValueError, TypeError):
        raise UserError(
            f"{path} is no private key that can be read"
            f"{'' if secret else f' (if it is encrypted, set {PASSPHRASE})'}; "
            "posttrain release keys init makes a pair"
        ) from None


def load_public(path: Path) -> "SSlibKey":
    """The key that verifies, from a PEM file."""
    require_packages()
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey

    data = _read(path, "ask whoever signed for their public key, and give it with --key")
    try:
        return SSlibKey.from_crypto(load_pem_public_key(data))
    except (ValueError, TypeError):
        raise UserError(f"{path} is no public key in PEM form; give the .pub file") from None


def public_pem(key: "SSlibKey") -> bytes:
    """An Ed25519 public key as a file holds it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.keyval["public"]))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return public.public_bytes(serialization.Encoding.PEM, form)


def require_packages(extra: str = "release") -> None:
    """Refuse where the packages of one of posttrain's extras are not installed."""
    try:
        for package in _PACKAGES[extra]:
            importlib.import_module(package)
    except ImportError as error:
        raise UserError(
            f"signed releases need the package {error.name}; install all that they need with: "
            f"{extra_line(extra)}"
        ) from None


def _read(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read the key {path}: {error.strerror}; {remedy}") from None


def _repository(folder: Path) -> Path | None:
    absolute = folder.absolute()
    return next((each for each in (absolute, *absolute.parents) if (each / ".git").exists()), None)
