"""One alteration: a copy of a release, and what alterations have in common."""

import base64
import json
import shutil
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from posttrain.publishing.release import keys
from posttrain.publishing.release.statements import canonical, sign
from posttrain.stage.hashing import sha256_of_file, sha256_of_json

VERSION = "v1.1.0"
CLAIMS = "claims.jsonl"
JSON = Any


class Case:
    """A release that is to be altered, in a folder of its own."""

    def __init__(self, place: Path, folder: Path, chance: Random) -> None:
        self.place, self.folder, self.chance = place, folder, chance
        self.altered = folder / "release"
        self.cwd = folder

    @cached_property
    def release(self) -> Path:
        """A copy of the release's folder, which is then verified."""
        shutil.copytree(self.place / f"project/releases/mini/{VERSION}", self.altered)
        return self.altered

    @cached_property
    def archive(self) -> bytearray:
        """The bytes of the release's archive."""
        path = self.place / f"project/releases/mini/mini-{VERSION}.tar"
        return bytearray(path.read_bytes())

    @cached_property
    def project(self) -> Path:
        """A copy of the whole project, in which tags can be altered."""
        root = self.folder / "project"
        shutil.copytree(self.place / "project", root, symlinks=True)
        self.cwd = root
        return root

    def pick(self, items: Any) -> Any:
        """Choose one of some things."""
        return self.chance.choice(sorted(items) if isinstance(items, set | dict) else list(items))

    def file(self, *, small: bool = False) -> Path:
        """Choose a file of the release."""
        files = [each for each in sorted(self.release.rglob("*")) if each.is_file()]
        return Path(self.pick([each for each in files if not small or each.stat().st_size < 10**5]))

    def write_archive(self, data: bytes) -> None:
        """Put an archive in the place of the release."""
        self.altered.write_bytes(data)

    # Claims

    def lines(self) -> list[bytes]:
        """The lines of claims.jsonl."""
        return (self.release / CLAIMS).read_bytes().splitlines()

    def write_lines(self, lines: list[bytes]) -> None:
        """Write claims.jsonl."""
        (self.release / CLAIMS).write_bytes(b"\n".join(lines) + b"\n")

    def statements(self) -> list[JSON]:
        """What the claims say."""
        return [json.loads(base64.b64decode(json.loads(line)["payload"])) for line in self.lines()]

    def sign_anew(self, statements: list[JSON]) -> None:
        """Sign statements as the holder of the key can, with today's digests of the files."""
        last = statements[-1]
        if isinstance(last.get("predicate"), dict) and "claims" in last["predicate"]:
            last["predicate"]["claims"] = [sha256_of_json(each) for each in statements[:-1]]
        subjects = last.get("subject")
        for each in subjects if isinstance(subjects, list) else []:
            path = self.release / str(each.get("name"))
            if path.is_file():
                each["digest"] = {"sha256": sha256_of_file(path)}
                each["annotations"] = {"bytes": path.stat().st_size}
        signer = keys.load_signer(self.place / "keys/release.key")
        self.write_lines([_signed(each, signer) for each in statements])

    def edit_json(self, name: str, edit: Callable[[JSON], None]) -> None:
        """Change a JSON file of the evidence and sign the release anew."""
        path = self.release / f"release/{name}.json"
        value = json.loads(path.read_text())
        edit(value)
        path.write_text(json.dumps(value))
        self.sign_anew(self.statements())


def _signed(statement: JSON, signer: Any) -> bytes:
    return sign(statement, signer)


def envelope_of(payload: bytes, keyid: str, signature: bytes = b"\0" * 64) -> bytes:
    """An envelope that nobody signed."""
    return canonical(
        {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": "application/vnd.in-toto+json",
            "signatures": [{"keyid": keyid, "sig": base64.b64encode(signature).decode()}],
        }
    )
