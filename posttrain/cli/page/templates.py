"""The templates of the app, escaping everything that is not marked as markup."""

import json
import time
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup

from posttrain.provenance.actor import person
from posttrain.stage.formatting import bytesize, counted, duration, number, shortened

_LONGEST = 400


@cache
def page_templates() -> jinja2.Environment:
    """Return the environment of the templates in `pages`."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("posttrain.cli.page", "pages"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "bytesize": bytesize,
        "person": person,
        "counted": counted,
        "duration": duration,
        "number": figure,
        "short": shortened,
        "moment": moment,
        "as_json": as_script,
        "cut": cut_short,
    }
    return environment


def figure(value: float | str | None) -> str:
    """Write a figure for a cell: nothing where there is none."""
    if value is None:
        return ""
    return value if isinstance(value, str) else number(value)


def cut_short(value: object) -> str:
    """Write any value for a cell, the end of a long one left out."""
    text = str(value)
    left = len(text) - _LONGEST
    return text if left <= 0 else f"{text[:_LONGEST]} … {left:,} more characters"


def moment(seconds: float | None) -> str:
    """Write a moment in the time of this machine.

    Args:
        seconds: Since 1970; None writes nothing.

    Returns:
        Such as `2026-11-28 17:21`.

    """
    return "" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def as_script(value: Any) -> Markup:
    """Write JSON that cannot end the script element that it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))
