"""What the card of a model or a data set says of its license: the head of its README.md."""

from collections.abc import Mapping
from pathlib import Path

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
    import yaml
    from huggingface_hub.repocard import metadata_load

    card = folder / "README.md"
    if not card.is_file():
        return {}
    try:
        stated = metadata_load(card) or {}
    # What somebody wrote about a model is no reason not to take it.
    except (ValueError, yaml.YAMLError, OSError):
        return {}
    return {name: _words(stated[name]) for name in _FIELDS if stated.get(name)}


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
