"""Key pairs: where they go, who may read them, and what is said of bad ones."""

import stat

import pytest

from posttrain.publishing.release.keys import PASSPHRASE, load_public, load_signer, make_pair
from posttrain.publishing.release.statements import (
    BadEnvelope,
    check_statement,
    open_envelope,
    sign,
)
from posttrain.stage.errors import UserError

STATEMENT = {"_type": "https://in-toto.io/Statement/v1", "n": 1}


def test_a_pair_signs_and_verifies(tmp_path):
    private, public = make_pair(tmp_path / "keys")
    line = sign(STATEMENT, load_signer(private))
    statement, payload = open_envelope(line, load_public(public))
    assert statement == STATEMENT
    assert payload == b'{"_type":"https://in-toto.io/Statement/v1","n":1}'


def test_the_private_key_is_its_owners_alone(tmp_path):
    private, _ = make_pair(tmp_path / "keys")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    private.chmod(0o644)
    with pytest.raises(UserError, match="can be read by others; chmod 600"):
        load_signer(private)


def test_no_pair_is_made_inside_a_repository_or_over_another(tmp_path):
    (tmp_path / "repo/.git").mkdir(parents=True)
    with pytest.raises(UserError, match="inside the git repository"):
        make_pair(tmp_path / "repo/some/keys")
    assert not (tmp_path / "repo/some").exists()
    make_pair(tmp_path / "keys")
    with pytest.raises(UserError, match="exists"):
        make_pair(tmp_path / "keys")


def test_a_passphrase_encrypts_the_private_key(tmp_path, monkeypatch):
    monkeypatch.setenv(PASSPHRASE, "correct horse")
    private, public = make_pair(tmp_path / "keys")
    assert b"ENCRYPTED" in private.read_bytes()
    line = sign(STATEMENT, load_signer(private))
    assert open_envelope(line, load_public(public))[0] == STATEMENT
    monkeypatch.setenv(PASSPHRASE, "wrong")
    with pytest.raises(UserError, match="no private key that can be read"):
        load_signer(private)
    monkeypatch.delenv(PASSPHRASE)
    with pytest.raises(UserError, match=PASSPHRASE):
        load_signer(private)


@pytest.mark.parametrize("content", [b"", b"hello", b"-----BEGIN PUBLIC KEY-----\nAAAA\n"])
def test_what_is_no_key_is_said(tmp_path, content):
    path = tmp_path / "k"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(UserError, match="no public key"):
        load_public(path)
    with pytest.raises(UserError, match="no private key"):
        load_signer(path)
    with pytest.raises(UserError, match="cannot read the key"):
        load_public(tmp_path / "absent")


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"nonsense", b'{"payload":1}', b"\xff\xfe"])
def test_a_line_that_is_no_envelope_is_said(tmp_path, line):
    _, public = make_pair(tmp_path / "keys")
    with pytest.raises(BadEnvelope, match="no DSSE envelope"):
        open_envelope(line, load_public(public))


@pytest.mark.parametrize(
    "statement",
    [
        {},
        STATEMENT,
        {"_type": "https://in-toto.io/Statement/v1", "subject": [], "predicateType": "x"},
    ],
)
def test_what_in_toto_does_not_read_is_no_statement(statement):
    with pytest.raises(ValueError, match=r".+"):
        check_statement(statement)
