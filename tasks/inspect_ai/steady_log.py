"""Inspect's log without clocks and drawn names: the same bytes whenever the same is evaluated."""

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NAMES = frozenset({"eval_id", "id", "parent_id", "run_id", "span_id", "task_id", "uuid"})
_STAMPS = frozenset({"completed", "completed_at", "created", "started_at", "timestamp"})
_SECONDS = frozenset(
    {"duration", "time", "total_time", "working_end", "working_start", "working_time"}
)
_DRAWN = re.compile(r"[0-9A-Za-z]{22}")
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d|Z)")
_THEN = "1970-01-01T00:00:00+00:00"
_DATE = (1980, 1, 1, 0, 0, 0)
_OF_THE_MACHINE = frozenset({"revision", "log_dir", "task_file"})


def write_steady_log(log: Path, path: Path, *, folder: Path) -> None:
    """Write a log again, as a function of what was evaluated alone.

    Names that Inspect draws become numbers in the order in which they stand; stamps become the
    beginning of 1970, seconds 0, and paths begin at the recipe's folder. All else is kept.

    Args:
        log: A `.eval` file, as Inspect wrote it.
        path: Where to write.
        folder: Of the recipe.

    """
    # Its import teaches `zipfile` the compression that Inspect uses.
    import zipfile_zstd  # noqa: F401

    with zipfile.ZipFile(log) as archive:
        parts = {name: json.loads(archive.read(name)) for name in archive.namelist()}
    drawn: dict[str, str] = {}
    for _, content in sorted(parts.items()):
        for name in _drawn_names(content):
            drawn.setdefault(name, f"{len(drawn) + 1:022d}")
    begin = f"{folder}/"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(parts.items()):
            text = json.dumps(_steady(content, drawn, ""), indent=1, ensure_ascii=False)
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, text.replace(begin, ""))


def _drawn_names(content: Any, key: str = "") -> Iterator[str]:
    if isinstance(content, dict):
        for name, value in content.items():
            yield from _drawn_names(value, _called(name, content))
    elif isinstance(content, list):
        for value in content:
            yield from _drawn_names(value, key)
    elif key in _NAMES and isinstance(content, str) and _DRAWN.fullmatch(content):
        yield content


def _steady(content: Any, drawn: dict[str, str], key: str) -> Any:
    if key in _OF_THE_MACHINE:
        return None
    if isinstance(content, dict):
        return {
            name: _steady(value, drawn, _called(name, content)) for name, value in content.items()
        }
    if isinstance(content, list):
        return [_steady(value, drawn, key) for value in content]
    if key in _SECONDS and isinstance(content, float):
        return 0.0
    if key in _STAMPS and isinstance(content, str) and _STAMP.fullmatch(content):
        return _THEN
    return drawn.get(content, content) if isinstance(content, str) else content


def _called(name: str, around: dict[str, Any]) -> str:
    """What a value is: of a change of a sample's state what stands at its path."""
    return str(around["path"]).rpartition("/")[2] if name == "value" and "path" in around else name
