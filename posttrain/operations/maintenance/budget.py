"""An amount of bytes as people write it."""

import re

from posttrain.stage.errors import UserError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """`50GB`, `1.5 TB`, `800MiB` or a plain number of bytes."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise UserError(f"'{text}' is no amount of bytes; write it as 50GB, 800MB or 1.5TB")
    unit = match[2].lower()
    scale = 1024 ** "kmgt".index(unit) * 1024 if unit and match[3] else _UNITS[unit]
    return int(float(match[1]) * scale)
