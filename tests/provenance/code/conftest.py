import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

from posttrain.provenance.code import CodeClosure, CodeReader


@dataclass(frozen=True)
class Project:
    """A tree of one first-party package, `pkg`, whose entry is `pkg.stage:run`."""

    root: Path

    def write(self, text: str, values: Mapping[str, object] | None = None) -> None:
        """Write files from one text in which `# pkg/name.py` starts each, with `values` put in."""
        for mark, value in (values or {}).items():
            text = re.sub(rf"\b{mark}\b", str(value), text)
        for section in dedent(text).split("\n# pkg/")[1:]:
            name, _, body = section.partition("\n")
            path = self.root / "pkg" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            (path.parent / "__init__.py").touch()
            path.write_text(body)

    def reader(self, cache: Path | None = None) -> CodeReader:
        return CodeReader(self.root, packages=("pkg",), cache=cache)

    def closure(self, entry: str = "pkg.stage:run", cache: Path | None = None) -> CodeClosure:
        return self.reader(cache).closure(entry)

    def digest(self, text: str, values: Mapping[str, object] | None = None) -> str:
        self.write(text, values)
        return self.closure().digest

    def check_that_only_x_counts(self, text: str) -> None:
        """In `text`, X stands where the entry reaches, and Y where it does not."""
        before = self.digest(text, {"X": 11, "Y": 22})
        assert self.digest(text, {"X": 11, "Y": 33}) == before
        assert self.digest(text, {"X": 12, "Y": 22}) != before
        assert self.digest(text, {"X": 11, "Y": 22}) == before


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)
