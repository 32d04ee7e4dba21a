"""What a page needs once for all its charts: Vega, the script that draws, and the style."""

import os
from importlib.metadata import version
from pathlib import Path

from posttrain.stage.files import replacing

_FOLDER = Path(__file__).parent


def chart_scripts() -> list[str]:
    """Return the scripts of a page with charts, each for a script element of its own.

    Returns:
        Vega, Vega-Lite and vega-embed as one, then what draws every figure of the page.

    """
    return [vega(), (_FOLDER / "charts.js").read_text(encoding="utf-8")]


def chart_style() -> str:
    """Return the style of figures, and the colors that charts name."""
    return (_FOLDER / "charts.css").read_text(encoding="utf-8")


def vega() -> str:
    """Return Vega for the browser, which vl-convert brings; it is put together once on a machine.

    Returns:
        A script that sets `vegaEmbed`.

    """
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    kept = Path(caches) / "posttrain" / f"vega-{version('vl-convert-python')}.js"
    try:
        return kept.read_text(encoding="utf-8")
    except OSError:
        from vl_convert import javascript_bundle

        # Its stub asks for the lines of a page's own, which it does without.
        script = str(javascript_bundle())  # type: ignore[call-arg]
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with replacing(kept) as partial:
            partial.write_text(script, encoding="utf-8")
    except OSError:
        # A home that cannot be written to costs the seconds again, and nothing else.
        pass
    return script
