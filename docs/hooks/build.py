"""The hook of mkdocs.yml: adds pages made from README, code and catalog; checks links."""

import logging
import posixpath
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
sys.path[:0] = [each for each in [str(ROOT)] if each not in sys.path]

from docs.hooks import built_links, notebook_pages, reference, repository_links, split_pages  # noqa: E402

log = logging.getLogger("mkdocs.hooks.posttrain")

PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
}
"""Documents that stand outside of docs/."""
_LONG, _FOLDER = "docs/extending.md", "extending"
"""A document of seven thousand lines: each slot has a page of its own."""
_WIDE = ("docs/coming-from.md",)
"""What has code side by side, for which a list of headings leaves no room."""
_HISTORY = ("CHANGELOG.md", "docs/claims.md", "docs/decisions/")
"""What is found last: it says how things came about, not how they are."""
_PICTURES = ("*.svg", "*.png")


def _documents() -> dict[str, str]:
    """File or folder of the repository -> page of the site."""
    found = dict(PAGES)
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.is_file() and "hooks" not in path.parts:
            found[path.relative_to(ROOT).as_posix()] = path.relative_to(ROOT / "docs").as_posix()
    for path in sorted((ROOT / "docs").rglob("*.ipynb")):
        page = path.relative_to(ROOT / "docs").with_suffix(".md").as_posix()
        found[path.relative_to(ROOT).as_posix()] = page
    found["docs/decisions"] = "decisions/README.md"
    for path in sorted([*ROOT.glob("benchmarks/*/README.md"), *ROOT.glob("recipes/*/README.md")]):
        named = path.relative_to(ROOT).as_posix()
        found[named] = found[posixpath.dirname(named)] = named
    for path in sorted(ROOT.glob("recipes/*/recipe.yaml")):
        folder = path.parent.relative_to(ROOT).as_posix()
        page = f"{folder}/recipe.md"
        found |= {f"{folder}/recipe.yaml": page, folder: found.get(folder, page)}
    found["LICENSE"] = "LICENSE.md"
    found |= reference.pages_of_code(ROOT)
    for pattern in _PICTURES:
        for path in sorted((ROOT / "benchmarks").rglob(pattern)):
            found[path.relative_to(ROOT).as_posix()] = path.relative_to(ROOT).as_posix()
    return found


DOCUMENTS = _documents()
FILES = {
    page: file
    for file, page in DOCUMENTS.items()
    if (ROOT / file).is_file() and not page.startswith("reference/")
}
"""Page of the site -> the file that it is made of."""


SPLIT = split_pages.split((ROOT / _LONG).read_text(encoding="utf-8"), "To add ", _FOLDER)
DOCUMENTS |= {f"{_LONG}#{each}": f"{_FOLDER}/{each}.md" for each in SPLIT.sections}


def _content(file: str) -> str:
    if file.endswith(".ipynb"):
        return notebook_pages.notebook_page(ROOT / file)
    text = (ROOT / file).read_text(encoding="utf-8")
    if file == "LICENSE":
        return f"# License\n\n```text\n{text}```\n"
    if file.endswith(".yaml"):
        return f"# {posixpath.dirname(file)}\n\n`{file}`:\n\n```yaml\n{text}```\n"
    return text


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that do not stand in docs/, and name them in the navigation."""
    for page, file in FILES.items():
        if file.startswith("docs/") and not file.endswith(".ipynb"):
            continue
        if page.endswith(".md"):
            files.append(File.generated(config, page, content=_content(file)))
        else:
            files.append(File.generated(config, page, abs_src_path=str(ROOT / file)))
    for name, text in SPLIT.sections.items():
        files.append(File.generated(config, f"{_FOLDER}/{name}.md", content=text))
    made = reference.pages(ROOT)
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    sections = {"Reference": reference.navigation(made), "Decisions": list(_decisions())}
    for entry in config.nav or []:
        for name in entry.keys() & sections.keys():
            entry[name] = sections[name]
    return files


def _decisions() -> Iterator[Any]:
    yield "decisions/README.md"
    for path in sorted((ROOT / "docs/decisions").glob("0*.md")):
        yield {f"{path.name[:4]} {_title(path)}": f"decisions/{path.name}"}


def _title(path: Path) -> str:
    """The heading of a decision, without its number."""
    heading = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    return heading.lstrip("0123456789. ")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Let links lead to pages of the site, or to the repository where its address is known."""
    here = page.file.src_uri
    file = FILES.get(here) or (_LONG if here.startswith(f"{_FOLDER}/") else "")
    if not file:
        return markdown
    if file in _WIDE:
        page.meta["hide"] = ["toc"]
    if file.startswith(_HISTORY):
        page.meta["search"] = {"boost": 0.3}
    if here == f"{_FOLDER}.md":
        markdown = SPLIT.rest
    base = (config.repo_url or "").rstrip("/")

    def address(file: str) -> str | None:
        return f"{base}/blob/main/{file}" if base and not file.startswith("..") else None

    return repository_links.rewritten(markdown, file, here, DOCUMENTS, address)


def on_post_build(config: MkDocsConfig) -> None:
    """Look at every link of what was built: a fault ends a strict build."""
    for fault in built_links.faults(Path(config.site_dir)):
        log.warning(fault)
