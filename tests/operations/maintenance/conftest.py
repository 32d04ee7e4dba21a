"""A toy project with history: runs whose artifacts nobody needs any more."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class Cache:
    """The DVC cache of a project, looked at from outside."""

    root: Path

    @property
    def folder(self) -> Path:
        return self.root / ".dvc" / "cache" / "files" / "md5"

    def sums(self) -> set[int]:
        """The `sum` of every toy result that the cache holds."""
        return {json.loads(path.read_text())["sum"] for path in self.folder.glob("??/*")}

    def damaged(self) -> list[str]:
        """Lists of directories whose files are not all there."""
        return [
            path.name
            for path in self.folder.glob("??/*.dir")
            for entry in json.loads(path.read_text())
            if not (self.folder / entry["md5"][:2] / entry["md5"][2:]).is_file()
        ]


@pytest.fixture
def cache(toy) -> Cache:
    return Cache(toy.root)


@pytest.fixture
def history(toy) -> Callable[..., None]:
    """Run the toy recipe with these amounts of its first stage, one run after the other.

    A run with amount n makes results n, n + 1 and n + 2; the last one is what dvc.lock names.
    """

    def make(*amounts: int) -> None:
        for amount in amounts:
            toy.run(f"first.amount={amount}")

    return make


@pytest.fixture
def git(toy) -> Callable[..., str]:
    """Run git in the toy project."""

    def run(*arguments: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@t")
        done = subprocess.run(
            ["git", *identity, *arguments],
            cwd=toy.root,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    return run
