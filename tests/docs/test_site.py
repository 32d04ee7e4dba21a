"""The site of the documents: it builds strictly, and its generated pages have all that there is."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from docs.hooks import built_links, notebook_pages, repository_links, split_pages
from docs.hooks.field_tables import field_table
from docs.hooks.table_pages import comments_of_columns
from docs.hooks.verb_pages import verb_pages
from docs.hooks.words import cell, paragraphs
from posttrain.cli.main import VERBS
from posttrain.data.chat_templates.base import Template
from posttrain.data.chat_templates.own import OwnTemplate
from posttrain.data.chat_templates.registry import TEMPLATES
from posttrain.pipeline.slots import SLOTS
from posttrain.stage.config import StageConfig
from posttrain.stage.slots import InSlot

ROOT = Path(__file__).parents[2]


class Inner(StageConfig):
    """What lies within."""

    rate: float = Field(default=0.5, gt=0.0, le=1.0)
    """How fast, in `a|b` of *all*."""


class Outer(StageConfig):
    """A config of one's own."""

    steps: int = Field(ge=1)
    """How many."""
    order: Literal["shuffled", "as_given"] = "shuffled"
    most: int | None = None
    inner: Inner = Inner(rate=0.25)
    """Nested."""
    template: Annotated[Template, InSlot(TEMPLATES)] = OwnTemplate()
    names: tuple[str, ...] = ("a",)


def test_a_config_becomes_a_table_with_the_defaults_that_hold_there():
    # The default of `inner.rate` is what Outer sets, not what Inner does.
    assert field_table(Outer, "x.", lambda slot: f"parts/{slot}.md").splitlines() == [
        "| field | type | default | range | meaning |",
        "|---|---|---|---|---|",
        "| `x.steps` | integer | `required` | ≥ 1 | How many. |",
        "| `x.order` | `shuffled` or `as_given` | `shuffled` |  |  |",
        "| `x.most` | integer or null | `null` |  |  |",
        "| `x.inner` | mapping |  |  | Nested. |",
        "| `x.inner.rate` | number | `0.25` | > 0.0, ≤ 1.0 | How fast, in `a|b` of \\*all\\*. |",
        "| `x.template` | [template](parts/template.md) | `own` |  |  |",
        '| `x.names` | list of text | `["a"]` |  |  |',
    ]


def test_comments_behind_columns_are_what_these_hold():
    source = (
        'A = Schema(\n    {\n        "x": String,  # the first\n        "y": Int32,\n    }\n)\n'
    )
    assert comments_of_columns(source) == {"A": {"x": "the first"}}


def test_texts_of_code_mean_in_markdown_what_they_say():
    assert cell("a < b | c,\n  [0, 1] and `x | y`") == "a \\< b \\| c, \\[0, 1\\] and `x | y`"
    assert (
        paragraphs("One\nline.\n\n    shown: as it is")
        == "One line.\n\n```text\n    shown: as it is\n```"
    )


def test_links_of_documents_lead_to_pages_or_are_words():
    pages = {"docs/b.md": "b.md", "README.md": "index.md", "docs/b.md#to-add-x": "b/to-add-x.md"}
    text = "[b](b.md#at) [up](../README.md) [x](b.md#to-add-x) [code](../posttrain/a.py)\n"
    fenced = "```\n[b](b.md)\n```\n"
    known = repository_links.rewritten(
        text + fenced, "docs/d/../a.md", "d/a.md", pages, lambda file: f"https://host/{file}"
    )
    assert known == (
        "[b](../b.md#at) [up](../index.md) [x](../b/to-add-x.md)"
        f" [code](https://host/posttrain/a.py)\n{fenced}"
    )
    unknown = repository_links.rewritten(text, "docs/a.md", "a.md", pages, lambda _: None)
    assert unknown == "[b](b.md#at) [up](index.md) [x](b/to-add-x.md) code\n"


def test_sections_of_a_kind_become_pages_and_the_rest_stays():
    text = (
        "# T\n\n## First\n\n## To add an x\n\n```\n## To add nothing\n```\n\n### How\n\n## Last\n"
    )
    found = split_pages.split(text, "To add ", "more")
    assert found.rest == "# T\n\n## First\n\n- [To add an x](more/to-add-an-x.md)\n\n## Last"
    assert found.sections == {
        "to-add-an-x": "# To add an x\n\n```\n## To add nothing\n```\n\n## How\n"
    }


def test_a_link_that_leads_nowhere_is_named(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="sub/b.html#there">b</a><a href="gone.html">g</a>'
        '<script src="https://elsewhere.test/x.js"></script><a href="https://elsewhere.test">e</a>'
    )
    (tmp_path / "sub/b.html").write_text('<a href="../a.html#top">a</a><a href="#here">h</a>')
    assert list(built_links.faults(tmp_path)) == [
        "a.html leads to gone.html, and nothing is there",
        "a.html loads https://elsewhere.test/x.js from elsewhere",
        "a.html leads to sub/b.html#there, and the page has no such place",
        "sub/b.html leads to #here, and the page has no such place",
    ]


def test_every_verb_has_a_page_with_all_that_its_help_says():
    made = dict(verb_pages())
    verbs = {name for section in VERBS.values() for name in section}
    assert made.keys() == {f"reference/cli/{name}.md" for name in (*verbs, "index")}
    assert "## posttrain release verify\n" in made["reference/cli/release.md"]
    assert "--trace [up|down|family]" in made["reference/cli/rows.md"]


def test_every_document_is_in_the_navigation():
    named = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    shown = {page for page in pages if not page.startswith("decisions/")}
    assert [page for page in sorted(shown) if page not in named] == []
    assert len(shown) > 20


@pytest.mark.slow  # half a minute: some five hundred pages
@pytest.mark.core
def test_the_site_builds_strictly_and_has_a_page_of_everything(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")}
    names = {
        "reference/stages": [path.parent.name for path in ROOT.glob("tasks/*/config.py")],
        "reference/parts": SLOTS,
        "reference/methods": [
            path.stem
            for path in ROOT.glob("posttrain/methods/[a-z]*/[a-z]*.yaml")
            if path.parent.name != "arenas"
        ],
        "reference/cli": [name for section in VERBS.values() for name in section],
        "decisions": [path.stem for path in ROOT.glob("docs/decisions/0*.md")],
        "notebooks": [path.stem for path in ROOT.glob("docs/notebooks/*.ipynb")],
        "": [path.stem for path in ROOT.glob("docs/*.md")],
    }
    wanted = {f"{folder}/{name}.html".lstrip("/") for folder in names for name in names[folder]}
    assert sorted(wanted - made) == []
    assert len(wanted) > 300
    assert (tmp_path / "search/search_index.json").is_file()


def test_a_notebook_is_a_page_of_its_cells_and_what_they_showed(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["# A\n", "b"]},
        {"cell_type": "code", "source": ["x = 1"], "outputs": []},
        {"cell_type": "code", "source": ["x"], "outputs": [
            {"output_type": "stream", "name": "stdout", "text": ["\x1b[1mbold\x1b[0m\n"]},
            {"output_type": "execute_result", "data": {"text/plain": ["1"]}},
            {"output_type": "execute_result",
             "data": {"text/html": ["<p>1</p>\n", "\n", "<p>2</p>"], "text/plain": ["1"]}},
        ]},
    ]  # fmt: skip
    file = tmp_path / "a.ipynb"
    file.write_text(json.dumps({"cells": cells}))
    assert notebook_pages.notebook_page(file) == (
        "# A\nb\n\n```python\nx = 1\n```\n\n```python\nx\n```\n\n```text\nbold\n```\n\n"
        '```text\n1\n```\n\n<div class="shown">\n<p>1</p>\n<p>2</p>\n</div>\n'
    )
    error = {"output_type": "error", "ename": "E", "evalue": "", "traceback": []}
    file.write_text(json.dumps({"cells": [{**cells[1], "outputs": [error]}]}))
    with pytest.raises(ValueError, match="a page cannot show .* error"):
        notebook_pages.notebook_page(file)
