"""Models of the Hugging Face hub, by way of the user's own cache: data only, nothing that runs."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from posttrain.data.hub import check_network
from posttrain.learning.models.subnetwork_file import FILE as SUBNETWORK
from posttrain.stage.errors import UserError, first_line
from posttrain.stage.hashing import git_name_of_file, sha256_of_file

# Weights as safetensors, configuration, and tokenizers of every format that is no code.
_WANTED = [
    *("*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja"),
    *("*.model", "vocab.txt", "merges.txt"),
    "README.md",
    SUBNETWORK,
]
_CONFIG = "config.json"


def fetch_model(name: str, *, revision: str) -> Path:
    """Find a model in the hub's cache on this machine, and download what is missing of it.

    The cache is the user's (HF_HUB_CACHE, HF_HOME). Where there is no network, or HF_HUB_OFFLINE
    is set, the model is what the cache holds, or is refused.

    Args:
        name: Of the model at the hub, ``owner/name``.
        revision: Commit, in full.

    Returns:
        The folder with the model's files, whose bytes are those that the hub has listed.

    Raises:
        UserError: The hub does not know the model or the commit, access is denied, there is
            neither a network nor the whole model in the cache, or the cache was altered.

    """
    from huggingface_hub import snapshot_download

    what = f"model '{name}' at {revision}"
    download = partial(
        snapshot_download,
        name,
        revision=revision,
        allow_patterns=_WANTED,
        library_name="posttrain",
    )
    try:
        check_network(
            what,
            remedy="without a network, download the model elsewhere and give its folder as path",
        )
    except UserError:
        folder = _kept(download)
        if folder is None:
            raise
    else:
        folder = _fetched(what, download)
    _check_whole(what, folder)
    _check_bytes(what, folder)
    return folder


def _kept(download: Callable[..., str]) -> Path | None:
    """The folder in the cache; None where it has none, or the hub's listing has more files."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(download(local_files_only=True))
    except LocalEntryNotFoundError:
        return None


def _fetched(what: str, download: Callable[..., str]) -> Path:
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        return Path(download())
    except RevisionNotFoundError:
        raise UserError(
            f"{what}: the hub knows the model but not this commit; "
            "take one from the model's page under 'Files and versions'"
        ) from None
    except RepositoryNotFoundError:
        raise UserError(
            f"{what}: the hub has no such model, or it is private or gated and HF_TOKEN is not set "
            "or has no access; check the name, or give the folder of a local copy as path"
        ) from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise UserError(
            f"{what}: cannot be fetched: {first_line(error)}; "
            "try again, without HF_HUB_OFFLINE where that is set, or give the folder of a local"
            " copy as path"
        ) from None


def _check_whole(what: str, folder: Path) -> None:
    """Refuse what others fetched in part: without a listing, the hub's library does not tell."""
    missing = [] if (folder / _CONFIG).exists() else [_CONFIG]
    for index in sorted(folder.glob("*.safetensors.index.json")):
        missing += [shard for shard in _shards(index) if not (folder / shard).exists()]
    if not missing and not any(folder.glob("*.safetensors")):
        missing = ["model.safetensors"]
    if missing:
        raise UserError(
            f"{what}: {folder} has no {missing[0]}; where there is a network, fetch the whole of it"
            " without HF_HUB_OFFLINE, or give the folder of a local copy as path"
        )


def _shards(index: Path) -> list[str]:
    try:
        return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, LookupError, TypeError, AttributeError):
        return []  # said where the model's files are read


def _check_bytes(what: str, folder: Path) -> None:
    """Compare files with their digests: the cache names each by what the hub says of its bytes."""
    for link in sorted(folder.iterdir()):
        blob = link.resolve()
        digest = {64: sha256_of_file, 40: git_name_of_file}.get(len(blob.name))
        if link.is_symlink() and digest is not None and digest(blob) != blob.name:
            raise UserError(
                f"{what}: {link.name} is not as it was downloaded; delete {blob} and run again"
            )
