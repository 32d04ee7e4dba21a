"""Find out what moved of what a run starts from: one digest for each thing that a schedule watches.

A watched thing is `kind:place`. The run itself adds the recipe's local files and Hugging Face
sources. In places, $NAME stands for a variable of the environment, so that no password is stored.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from posttrain.stage.errors import UserError, first_line, nearest
from posttrain.stage.hashing import sha256_of_parts, sorted_json

Fingerprint = Mapping[str, str]


class DoesNotAnswer(UserError):
    """What is watched cannot be looked at now; a later attempt may find it."""


def fingerprint(root: Path, watched: Sequence[str]) -> dict[str, str]:
    """The digest of each of `watched`; paths are relative to `root`."""
    return {item: _digest_item(root, item) for item in sorted(set(watched))}


def moved(before: Fingerprint, now: Fingerprint) -> list[str]:
    """What has another digest, or was not there before, in words."""
    changed = [item for item, digest in now.items() if before.get(item, digest) != digest]
    added = [item for item in now if item not in before]
    return [f"{item} moved" for item in changed] + [f"{item} is new" for item in added]


def require_watchable(item: str) -> str:
    """`item` if its kind is known, else a sentence."""
    kind, colon, place = item.partition(":")
    if kind not in WATCHERS:
        raise UserError(
            f"watch {item}: there is no kind '{kind}'{nearest(kind, WATCHERS)}; "
            f"write kind:place with one of {', '.join(WATCHERS)}"
        )
    if not colon or not place:
        raise UserError(f"watch {item}: nothing is named after '{kind}:'")
    return item


def _digest_item(root: Path, item: str) -> str:
    kind, _, place = require_watchable(item).partition(":")
    return WATCHERS[kind](root, os.path.expandvars(place))


def _file(root: Path, place: str) -> str:
    from posttrain.stage.hashing import StatCache, digest_path

    path = root / Path(place).expanduser()
    if not path.exists():
        raise UserError(f"file:{place}: there is nothing at {path}")
    cache = StatCache.load(root / ".posttrain" / "watched.json")
    digest = digest_path(path, cache=cache).sha256
    cache.save()
    return digest


def _remote(root: Path, place: str) -> str:
    from posttrain.provenance.dvc.remote import remote_digest

    return remote_digest(root, f"remote:{place}")


def _huggingface(_root: Path, place: str) -> str:
    """`datasets/owner/name@revision` or `models/...`: the commit that the revision is now."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    kind, _, rest = place.partition("/")
    name, _, revision = rest.partition("@")
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    if kind not in ("datasets", "models"):
        raise UserError(f"hf:{place}: write hf:datasets/OWNER/NAME@REVISION, or hf:models/...")
    try:
        found = api.repo_info(
            name, repo_type=kind.removesuffix("s"), revision=revision or None, timeout=20
        )
        return str(found.sha)
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise UserError(f"hf:{place}: {first_line(error)}") from None
    except Exception as error:  # noqa: BLE001
        # The hub's own errors, and those of the transport that it happens to use.
        raise DoesNotAnswer(f"hf:{place}: the hub does not answer: {first_line(error)}") from None


def _sql(_root: Path, place: str) -> str:
    """`URL#SELECT ...`: the rows, in the order in which the query gives them."""
    from sqlalchemy import create_engine, text
    from sqlalchemy.exc import SQLAlchemyError

    from posttrain.provenance.ledger.migrate import driver_url

    url, mark, query = place.partition("#")
    if not mark:
        raise UserError("sql: write sql:URL#SELECT ..., the query after the #")
    try:
        engine = create_engine(driver_url(url))
        with engine.connect() as connection:
            rows = connection.execution_options(stream_results=True).execute(text(query))
            found = sha256_of_parts(
                sorted_json([*row], as_text=True).encode() + b"\n" for row in rows
            )
        engine.dispose()
    except (SQLAlchemyError, ImportError, ValueError) as error:
        raise UserError(f"sql: the query failed: {str(error).splitlines()[0]}") from None
    return found


WATCHERS: Mapping[str, Callable[[Path, str], str]] = {
    "file": _file,
    "remote": _remote,
    "hf": _huggingface,
    "sql": _sql,
}
