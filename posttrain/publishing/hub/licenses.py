"""Licenses as the Hugging Face hub spells them in the head of a card."""

import re
from collections.abc import Mapping

from posttrain.stage.errors import UserError

# huggingface/hub-docs at 242f4a1e, docs/hub/repositories-licenses.md.
_LISTED = """
apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0
bigcode-openrail-m afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear
c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0
cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0
cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0 wtfpl
ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl
lgpl-2.1 lgpl-3.0 isc h-research intel-research lppl-1.3c ms-pl apple-ascl apple-amlr mpl-2.0
odc-by odbl openmdw-1.0 openmdw-1.1 openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib
pddl lgpl-lr deepfloyd-if-license fair-noncommercial-research-license llama2 llama3 llama3.1
llama3.2 llama3.3 llama4 grok2-community gemma unknown other
"""
HUB_LICENSES = frozenset(_LISTED.split())
# SPDX identifiers that the hub shortens beyond their case.
_SHORTENED: Mapping[str, str] = {"odc-by-1.0": "odc-by", "odbl-1.0": "odbl", "pddl-1.0": "pddl"}


def hub_license(license: str) -> str | None:
    """Find the hub's identifier of a license.

    >>> hub_license("Apache-2.0"), hub_license("GPL-3.0-or-later"), hub_license("Qwen Research")
    ('apache-2.0', 'gpl-3.0', None)

    Args:
        license: SPDX identifier, or the hub's own.

    Returns:
        The identifier; None where the hub lists no such license.

    """
    spelled = license.strip().lower()
    spelled = re.sub(r"^(a?gpl|lgpl)(-[\d.]+)-(only|or-later)$", r"\1\2", spelled)
    spelled = _SHORTENED.get(spelled, spelled)
    return spelled if spelled in HUB_LICENSES else None


def license_metadata(license: str | None, link: str | None, *, where: str) -> dict[str, str]:
    """Say a license in the head of a card.

    Args:
        license: As the recipe states it; None states none.
        link: Where its text is: an address, or LICENSE, a file beside the card.
        where: What a refusal begins with.

    Returns:
        `license`, and where the hub does not list it also `license_name` and `license_link`.

    Raises:
        UserError: The hub does not list it, and no link is given: it would refuse the card.

    """
    if license is None:
        return {}
    known = hub_license(license)
    if known is not None and known != "other":
        return {"license": known}
    if link is None:
        raise UserError(
            f"{where}: '{license}' is none of the licenses that the Hugging Face hub lists, so its"
            " card needs license_link, an address with the license's text; or take one of"
            " https://huggingface.co/docs/hub/repositories-licenses"
        )
    name = re.sub(r"[^a-z0-9.]+", "-", license.lower()).strip("-")
    return {"license": "other", "license_name": name, "license_link": link}
