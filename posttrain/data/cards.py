"""What the card of a model or a data set says: the head of its README.md."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

CARD_FILE = "README.md"
_FIELDS = ("license", "license_name", "license_link")


def stated_license(folder: Path) -> Mapping[str, str]:
    """Read the license that the card in a folder states, in the words of the card.

    Args:
        folder: Of a model or a data set, as a hub keeps it.

    Returns:
        `license`, the hub's identifier (`apache-2.0`; `other` with `license_name` and
        `license_link` beside it; several are parted by commas); empty where there is no card, or
        one that states none or cannot be read.

    """
    stated = stated_head(folder / CARD_FILE)
    return {name: _words(stated[name]) for name in _FIELDS if stated.get(name)}


def stated_head(card: Path) -> Mapping[str, Any]:
    """Read the metadata at the head of a card.

    Args:
        card: A README.md, which need not be there.

    Returns:
        What it states by field; empty where it states nothing or cannot be read, as what somebody
        wrote about a model is no reason not to take it.

    """
    from huggingface_hub.repocard import metadata_load
    from yaml import YAMLError

    try:
        return metadata_load(card) or {}
    except (OSError, ValueError, YAMLError):
        return {}


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
