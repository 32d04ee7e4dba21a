"""The workspace: whether its files still hold what was remembered of them."""

from collections.abc import Iterator
from pathlib import Path

from posttrain.operations.maintenance.checks.finding import CheckScope, Finding
from posttrain.stage.hashing import StatCache, sha256_of_file

_SHOWN = 5


def artifacts(place: CheckScope) -> Iterator[Finding]:
    """With `--deep`, hash every file whose digest a plan would take from memory."""
    if not place.deep:
        return
    cache = StatCache.load(place.state / "digests.json")
    files = {name: path for name in cache.entries if (path := Path(name)).is_file()}
    known = {name: cache.get(name, path.stat()) for name, path in files.items()}
    bad = [
        name for name, sha256 in known.items() if sha256 not in (None, sha256_of_file(files[name]))
    ]
    yield Finding("artifacts", "ok", f"{len(known) - len(bad):,} files hold what is known of them")
    for name in bad[:_SHOWN]:
        yield Finding("artifacts", "broken", _say(name), _remedy(place))
    if len(bad) > _SHOWN:
        more = f"{len(bad) - _SHOWN:,} more files hold other bytes than is known of them"
        yield Finding("artifacts", "broken", more, _remedy(place))


def _say(name: str) -> str:
    return f"{name} holds other bytes than is known of it, although its times are the same"


def _remedy(place: CheckScope) -> str:
    return f"remove {place.state / 'digests.json'}, which makes every file be read anew"
