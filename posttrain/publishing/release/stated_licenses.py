"""Which license a model or data set states of itself, and what it says it was made from.

Both stand at the head of its README, as the Hugging Face hub has it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.publishing.release.licenses import UNKNOWN, as_spdx

_CARD = "README.md"


@dataclass(frozen=True)
class StatedLicense:
    """What a card says: its license, and the names of the models that this one was made from."""

    license: str = UNKNOWN
    parents: tuple[str, ...] = ()


def stated_in(folder: Path) -> StatedLicense:
    """Read the card of a model or data set.

    Args:
        folder: With a README.md; without one nothing is stated.

    Returns:
        Its license, an SPDX expression where it is one.

    """
    card = folder / _CARD
    return _read(card) if card.is_file() else StatedLicense()


def stated_at_hub(name: str, revision: str | None) -> StatedLicense:
    """Read the card of a model or data set that the hub's cache on this machine has.

    Args:
        name: At the hub, such as `Qwen/Qwen2.5-0.5B`.
        revision: Commit or branch; None for the main branch.

    Returns:
        The same; nothing where the cache has no card, as nothing is fetched.

    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    for kind in ("model", "dataset"):
        try:
            found = try_to_load_from_cache(name, _CARD, revision=revision, repo_type=kind)
        except HFValidationError:
            break
        # It answers with an object of its own where it knows that there is none.
        if found is not None and Path(str(found)).is_file():
            return _read(Path(str(found)))
    return StatedLicense()


def _read(card: Path) -> StatedLicense:
    from huggingface_hub.repocard import metadata_load
    from yaml import YAMLError

    try:
        head = metadata_load(card)
    except (OSError, ValueError, YAMLError):
        return StatedLicense()
    if not head:
        return StatedLicense()
    named = _texts(head.get("license"))
    if named == ["other"]:
        named = _texts(head.get("license_name")) or [UNKNOWN]
    license = " AND ".join(as_spdx(each) for each in named) if named else UNKNOWN
    return StatedLicense(license, tuple(_texts(head.get("base_model"))))


def _texts(value: Any) -> list[str]:
    """One or several, as the hub allows."""
    return [each for each in (value if type(value) is list else [value]) if type(each) is str]
