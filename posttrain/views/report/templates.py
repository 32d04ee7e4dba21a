"""The templates of the page, escaping everything that is not marked as markup."""

from functools import cache
from typing import Any

from posttrain.stage.formatting import bytesize, duration, number


@cache
def template(name: str) -> Any:
    """Return the template of this name in this folder, by Jinja."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("posttrain.views.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.filters |= {
        "bytesize": bytesize,
        "duration": duration,
        "number": number,
        "pixels": lambda value: f"{value:.2f}".rstrip("0").rstrip("."),
    }
    return environment.get_template(name)
