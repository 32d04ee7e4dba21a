"""Licenses by their SPDX names: which one is meant or allowed, and what inputs state themselves.

A Python package states it in its metadata; a model or data set at the head of its README, as the
Hugging Face hub has it, and there also what it was made from.
"""

import importlib.metadata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.data.cards import CARD_FILE, stated_head

UNKNOWN = "unknown"
# A license's whole text in the field for its name says nothing that a list could hold.
_LONGEST_NAME = 60
# Classifiers that mean one SPDX identifier; "BSD License" means two, so it stays as it is.
_CLASSIFIED: Mapping[str, str] = {
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "Zope Public License": "ZPL-2.1",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
}
_SPELLED: Mapping[str, str] = {
    "apache": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "mit license": "MIT",
    "bsd 2-clause license": "BSD-2-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "psfl": "PSF-2.0",
}
# Classifiers that name no license.
_NO_LICENSE = ("OSI Approved", "DFSG approved", "Other/Proprietary License")


def license_of(metadata: Mapping[str, Any]) -> str:
    """The license in a package's metadata: an SPDX expression where it has one.

    Otherwise one that its words or classifiers mean without doubt, or the words themselves.

    >>> license_of({"license_expression": "MIT OR Apache-2.0"})
    'MIT OR Apache-2.0'
    >>> license_of({"license": "Apache 2.0"}), license_of({"license": "Copyright 2018 ..." * 9})
    ('Apache-2.0', 'unknown')
    >>> license_of({"classifier": ["License :: OSI Approved :: BSD License"]})
    'BSD License'
    """
    if stated := str(metadata.get("license_expression") or "").strip():
        return stated
    words = str(metadata.get("license") or "").strip()
    short = words if "\n" not in words and len(words) < _LONGEST_NAME else ""
    classified = _classified(metadata.get("classifier") or [])
    known = [_CLASSIFIED[each] for each in classified if each in _CLASSIFIED]
    if short.lower() in _SPELLED:
        return _SPELLED[short.lower()]
    if known and len(known) == len(classified):
        return " OR ".join(known)
    return short or " or ".join(classified) or UNKNOWN


def package_license(distribution: str) -> str:
    """The same of an installed package; unknown where it is not installed."""
    try:
        # The typed interface of metadata has no `get`, and a missing key is None in it.
        return license_of(importlib.metadata.metadata(distribution).json)
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN


def as_spdx(text: str) -> str:
    """Spell a license as SPDX does, where it has such a name; else in its own words.

    >>> as_spdx("apache-2.0"), as_spdx("mit OR gpl-3.0-only"), as_spdx("llama3")
    ('Apache-2.0', 'MIT OR GPL-3.0-only', 'llama3')

    Args:
        text: An identifier or an expression, in capitals or not.

    """
    from license_expression import get_spdx_licensing

    return str(get_spdx_licensing().validate(text).normalized_expression or text)


def is_allowed(license: str, allowed: Collection[str]) -> bool:
    """Return whether a license can be kept by those that are allowed.

    Of alternatives (`MIT OR GPL-3.0-only`) one is enough, of what holds together (`AND`) all count.

    >>> is_allowed("MIT OR GPL-3.0-only", ["mit"]), is_allowed("MIT AND GPL-3.0-only", ["mit"])
    (True, False)

    Args:
        license: An SPDX expression, or the words of one that SPDX does not know.
        allowed: SPDX identifiers, or such words.

    """
    from license_expression import get_spdx_licensing

    known = {as_spdx(each) for each in allowed}
    if as_spdx(license) in known:
        return True
    licensing = get_spdx_licensing()
    if licensing.validate(license).errors:
        return False
    parsed = licensing.parse(license)
    choices = licensing.license_symbols(parsed, unique=True, decompose=False)
    verdicts = {each: licensing.TRUE if str(each) in known else licensing.FALSE for each in choices}
    return bool(parsed.subs(verdicts, simplify=True) == licensing.TRUE)


def _classified(classifiers: Sequence[str]) -> list[str]:
    names = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License ::")]
    return [each for each in names if each not in _NO_LICENSE]


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
    return _read(folder / CARD_FILE)


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
            found = try_to_load_from_cache(name, CARD_FILE, revision=revision, repo_type=kind)
        except HFValidationError:
            break
        # It answers with an object of its own where it knows that there is none.
        if found is not None and Path(str(found)).is_file():
            return _read(Path(str(found)))
    return StatedLicense()


def _read(card: Path) -> StatedLicense:
    head = stated_head(card)
    named = _texts(head.get("license"))
    if named == ["other"]:
        named = _texts(head.get("license_name")) or [UNKNOWN]
    license = " AND ".join(as_spdx(each) for each in named) if named else UNKNOWN
    return StatedLicense(license, tuple(_texts(head.get("base_model"))))


def _texts(value: Any) -> list[str]:
    """One or several, as the hub allows."""
    return [each for each in (value if type(value) is list else [value]) if type(each) is str]
