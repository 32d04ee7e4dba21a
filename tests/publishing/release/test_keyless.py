"""Signing by an identity: up to Sigstore's servers, and what a notary's word then proves."""

import hashlib
import json
import sys
import time

import jwt
import pytest

from posttrain.cli.main import main
from posttrain.publishing.release import keyless
from posttrain.publishing.release.contents import BUNDLE, SIGNER, FolderContents, MemoryContents
from posttrain.publishing.release.keyless import Identity, key_inside, one_time_signer
from posttrain.publishing.release.verify import verify_contents, verify_path
from posttrain.stage.errors import UserError

pytestmark = pytest.mark.slow

ME = Identity("me@example.org", "https://accounts.example.org")


class PaperNotary:
    """Writes down who signed what."""

    def sign(self, data):
        return json.dumps({"who": vars(ME), "what": hashlib.sha256(data).hexdigest()}).encode()

    def verify(self, data, bundle, who):
        if json.loads(bundle) != {"who": vars(who), "what": hashlib.sha256(data).hexdigest()}:
            raise UserError("another identity, or other bytes")


@pytest.fixture(scope="module")
def made(released, tmp_path_factory):
    saved = list(sys.path)
    project = released.project.copy(tmp_path_factory.mktemp("keyless") / "copy")
    project.commit("third")
    from posttrain.publishing.release.create import create

    with project.session() as session:
        found = create(session, "mini", one_time_signer(), None, PaperNotary())
    sys.path[:] = saved
    return found


def test_an_identity_stands_in_place_of_a_key(made):
    key = key_inside(FolderContents(made.folder), PaperNotary(), ME)
    for path in (made.folder, made.archive):
        assert verify_path(path, key, expect=made.tag, proven=(BUNDLE,)) == []
    somebody = Identity("you@example.org", ME.issuer)
    with pytest.raises(UserError, match="another identity"):
        key_inside(FolderContents(made.folder), PaperNotary(), somebody)


def test_what_is_altered_is_found_all_the_same(made):
    contents = FolderContents(made.folder)
    files = {name: contents.read(name) for name in contents.names()}
    key = key_inside(contents, PaperNotary(), ME)

    def findings(name, data):
        altered = MemoryContents({**files, name: data})
        return verify_contents(altered, key, proven=(BUNDLE,))

    assert findings("README.md", b"x")[0].startswith("README.md: its bytes were altered")
    assert findings(SIGNER, b"x")[0].startswith(f"{SIGNER}: its bytes were altered")
    # A key of one's own and claims signed with it are not what the notary has seen.
    with pytest.raises(UserError, match="other bytes"):
        key_inside(MemoryContents({**files, "claims.jsonl": b"x"}), PaperNotary(), ME)
    # Nobody vouches for the bundle where it is not asked.
    assert verify_contents(contents, key) == [f"{BUNDLE}: it was added; no claim is about it"]
    with pytest.raises(UserError, match="signed with a key pair, not by an identity"):
        key_inside(MemoryContents({"claims.jsonl": b""}), PaperNotary(), ME)


def test_sigstore_refuses_a_bundle_that_proves_nothing(made):
    contents = FolderContents(made.folder)
    with pytest.raises(UserError, match=f"{BUNDLE}: it does not prove that me@example.org"):
        key_inside(contents, keyless.Sigstore(), ME)


@pytest.fixture
def call(released, tmp_path, monkeypatch, capfd):
    saved = list(sys.path)
    project = released.project.copy(tmp_path / "copy")
    project.commit("third")
    monkeypatch.chdir(project.root)
    monkeypatch.setenv("POSTTRAIN_TRACKING", "off")
    monkeypatch.delenv(keyless.TOKEN, raising=False)

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["posttrain", "release", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        assert "mini@v1.2.0" not in project.git("tag")
        return capfd.readouterr().err

    yield run
    sys.path[:] = saved


def token(**claims):
    now = int(time.time())
    body = {"aud": "sigstore", "iss": "https://accounts.google.com", "sub": "1", "iat": now}
    body |= {"nbf": now, "exp": now + 600, "email": ME.name, **claims}
    return jwt.encode(body, "x" * 32, algorithm="HS256")


def test_what_keyless_signing_wants_is_said(call, monkeypatch):
    assert "wants an identity: the OpenID Connect token of a CI job" in call(
        "create", "mini", "--sign", "keyless"
    )
    monkeypatch.setenv(keyless.TOKEN, token(aud="somebody"))
    said = call("create", "mini", "--sign", "keyless")
    assert "wants an identity token that Sigstore takes" in said
    assert "takes no --key" in call("create", "mini", "--sign", "keyless", "--key", "x")
    assert "--issuer belongs to --identity" in call("verify", "mini@v1.1.0", "--issuer", "x")
    assert "give --identity together with --issuer" in call("verify", ".", "--identity", "x")
    said = call("verify", "mini@v1.1.0", "--identity", ME.name, "--issuer", ME.issuer)
    assert "give --key PUBLIC_KEY" in said


def test_without_the_network_nothing_is_released(call, monkeypatch):
    """The real library, up to its first request."""
    monkeypatch.setenv(keyless.TOKEN, token())
    # A port where nobody answers, in place of the internet.
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    said = call("create", "mini", "--sign", "keyless")
    assert "asks Sigstore's servers (tuf-repo-cdn.sigstore.dev, fulcio.sigstore.dev" in said
    assert "nothing is released" in said
