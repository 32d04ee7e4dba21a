"""Answers that were paid for, by what was asked. A crash loses none of them."""

import json
import os
import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of, sorted_json
from posttrain.stage.write_ahead import BUSY_SECONDS, write_ahead

VARIABLE = "POSTTRAIN_REQUESTS"
"""Environment variable that names another file, to share answers between projects, say."""


def default_path() -> Path:
    """`.posttrain/requests.db` of the project around the working directory."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / ".dvc").is_dir()), here)
    return root / ".posttrain" / "requests.db"


def request_key(url: str, body: Mapping[str, Any], salt: str = "") -> str:
    """SHA-256 of everything that is asked; `salt` parts repeated draws of one question."""
    return sha256_of(sorted_json([url, body, salt], ascii_only=False))


class RequestCache:
    """A table from request key to the answer's JSON, for all threads and processes of a project.

    An answer is on disk before anyone sees it. Requests are not kept, so neither is a prompt.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False)
            write_ahead(self._database)
            self._database.execute("pragma synchronous=full")
            self._database.execute(
                "create table if not exists answers"
                " (key text primary key, digest text not null, answer text not null)"
            )
        except (sqlite3.Error, OSError) as error:
            raise self._refusal(error) from None

    def get(self, key: str) -> Any | None:
        """The answer, or None where it was never given or its bytes are no longer its own."""
        try:
            with self._lock:
                found = self._database.execute(
                    "select digest, answer from answers where key = ?", (key,)
                ).fetchone()
        except sqlite3.Error as error:
            raise self._refusal(error) from None
        if found is None or sha256_of(found[1]) != found[0]:
            return None
        return json.loads(found[1])

    def put(self, key: str, answer: Any) -> None:
        """Keep an answer; the last one wins."""
        text = json.dumps(answer, ensure_ascii=False)
        try:
            with self._lock, self._database:
                self._database.execute(
                    "insert or replace into answers values (?, ?, ?)",
                    (key, sha256_of(text), text),
                )
        except sqlite3.Error as error:
            raise self._refusal(error) from None

    def _refusal(self, error: Exception) -> UserError:
        return UserError(
            f"the request cache {self.path} cannot be used ({error}); make room, or name another"
            f" file in {VARIABLE}"
        )
