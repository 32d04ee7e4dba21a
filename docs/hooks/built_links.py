"""What a built site leads to: every link, anchor, picture, style and script must be in it."""

import posixpath
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}


class _Page(HTMLParser):
    """The targets that a page names, and the places in it that can be named."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: set[tuple[str, bool]] = set()
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value for name, value in attrs if value}
        self.anchors |= {named[each] for each in ("id", "name") if each in named}
        for name in {"href", "src"} & named.keys():
            canonical = tag == "link" and named.get("rel") in ("canonical", "prev", "next")
            if not canonical:
                self.targets.add((named[name], (tag, name) in _LOADED))


def faults(site: Path) -> Iterator[str]:
    """Say what is wrong with the links of a built site.

    Addresses of other hosts are not asked, as this must hold without network; what a page would
    load from one is a fault.

    Args:
        site: Its folder.

    Yields:
        A sentence for each page and target.

    """
    pages = {
        path.relative_to(site).as_posix(): _read(path) for path in sorted(site.rglob("*.html"))
    }
    for name, page in pages.items():
        for target, loaded in sorted(page.targets):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if loaded and parts.scheme != "data":
                    yield f"{name} loads {target} from elsewhere"
                continue
            there = posixpath.normpath(
                posixpath.join(posixpath.dirname(name), unquote(parts.path)) if parts.path else name
            )
            there = there.lstrip("/")  # as 404.html has them, which is served at any depth
            anchor = unquote(parts.fragment)
            if not (site / there).is_file():
                yield f"{name} leads to {target}, and nothing is there"
            elif anchor and there in pages and anchor not in pages[there].anchors:
                yield f"{name} leads to {target}, and the page has no such place"


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page
