"""Signing without a key pair of one's own: Sigstore certifies who signed, and logs it in public.

The claims are signed by a key that is made for this one release and forgotten; its public half lies
in the release. Sigstore's bundle beside them says which identity signed the claims as they are.
"""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from posttrain.publishing.release.contents import BUNDLE, CLAIMS, SIGNER, Contents
from posttrain.publishing.release.keys import require_packages
from posttrain.stage.errors import UserError, first_line

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, SSlibKey
    from sigstore.models import Bundle

TOKEN = "SIGSTORE_IDENTITY_TOKEN"
_INSTEAD = "or leave --sign out, and sign with your key pair (posttrain release keys init)"


class Notary(Protocol):
    """Who certifies that an identity signed some bytes, and says later whether it did."""

    def sign(self, data: bytes) -> bytes:
        """A bundle that proves it, as JSON."""

    def verify(self, data: bytes, bundle: bytes, who: "Identity") -> None:
        """Raise `UserError` unless that identity signed exactly these bytes."""


@dataclass(frozen=True)
class Identity:
    """Whose signature is expected: an address, and the OpenID Connect issuer behind it."""

    name: str
    issuer: str


class Sigstore:
    """Sigstore's public servers; signing needs them, verifying does not."""

    def sign(self, data: bytes) -> bytes:
        """See `Notary`."""
        token = identity_token()
        from sigstore.errors import Error
        from sigstore.models import ClientTrustConfig
        from sigstore.oidc import IdentityToken
        from sigstore.sign import SigningContext

        try:
            identity = IdentityToken(token)
            context = SigningContext.from_trust_config(ClientTrustConfig.production())
            with context.signer(identity) as signer:
                return _spelled(signer.sign_artifact(data))
        # Its servers are asked with `requests`, whose errors are of type OSError.
        except (Error, OSError) as error:
            raise UserError(
                "--sign keyless asks Sigstore's servers (tuf-repo-cdn.sigstore.dev, "
                "fulcio.sigstore.dev and rekor.sigstore.dev) to certify and log the signature, and "
                f"that failed: {first_line(error)}; nothing is released: try again from where "
                f"they can be reached, {_INSTEAD}"
            ) from None

    def verify(self, data: bytes, bundle: bytes, who: Identity) -> None:
        """See `Notary`."""
        require_packages("keyless")
        from sigstore.errors import Error
        from sigstore.models import Bundle
        from sigstore.verify import Verifier
        from sigstore.verify import policy as policies

        try:
            found = Bundle.from_json(bundle)
            expected = policies.Identity(identity=who.name, issuer=who.issuer)
            Verifier.production(offline=True).verify_artifact(data, found, expected)
        # A damaged bundle is refused by whichever of its parts is read first.
        except (Error, ValueError) as error:
            raise UserError(
                f"{BUNDLE}: it does not prove that {who.name} (of {who.issuer}) signed {CLAIMS}: "
                f"{first_line(error)}"
            ) from None
        if _spelled(found) != bundle:
            raise UserError(f"{BUNDLE}: bytes around what it proves were altered")


def one_time_signer() -> "CryptoSigner":
    """A key for one release; its private half never leaves this process."""
    from securesystemslib.signer import CryptoSigner

    return CryptoSigner.generate_ed25519()


def key_inside(contents: Contents, notary: Notary, who: Identity) -> "SSlibKey":
    """The key in a release, once the bundle has shown that `who` signed the claims."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey

    names = contents.names()
    if BUNDLE not in names or SIGNER not in names:
        raise UserError(
            "the release was signed with a key pair, not by an identity; give --key PUBLIC_KEY"
        )
    notary.verify(contents.read(CLAIMS), contents.read(BUNDLE), who)
    try:
        return SSlibKey.from_crypto(load_pem_public_key(contents.read(SIGNER)))
    except ValueError:
        raise UserError(f"{SIGNER}: its bytes were altered, it is no public key") from None


def identity_token() -> str:
    """The identity of this machine or person, as a token for Sigstore; refuses where none is."""
    require_packages("keyless")
    from sigstore.oidc import IdentityError, IdentityToken, detect_credential

    try:
        token = os.environ.get(TOKEN) or detect_credential()
        if token:
            IdentityToken(token)
    except IdentityError as error:
        raise UserError(
            f"--sign keyless wants an identity token that Sigstore takes: {first_line(error)}; "
            f"set {TOKEN} to one, {_INSTEAD}"
        ) from None
    if not token:
        raise UserError(
            "--sign keyless wants an identity: the OpenID Connect token of a CI job (GitHub, "
            f"GitLab, Google Cloud, Buildkite) or one in {TOKEN}, and there is neither; "
            f"give one, {_INSTEAD}"
        )
    return token


def _spelled(bundle: "Bundle") -> bytes:
    """One spelling, so that every byte of the file counts."""
    return bundle.to_json().encode() + b"\n"
