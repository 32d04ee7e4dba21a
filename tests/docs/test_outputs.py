"""What documents show of a command's output is what it prints: each line, in their order."""

import re

import pytest

from tests.docs.test_snippets import BLOCK, DOCUMENTS, ROOT
from tests.docs.test_tutorials import FOLLOWED, promises
from tests.forked import posttrain

ELSEWHERE = {
    "README.md": "the tree: tests/test_documents.py",
    "docs/how-to/inspect.md": "figures of the reader's model: tests/tasks/test_inspect_ai.py",
}
HERE = ["docs/methods.md", "docs/scale.md"]
_LEFT_OUT = ", ..."
"""Ends a line of which no more is shown."""


def _texts(name):
    return [
        text for language, text in BLOCK.findall((ROOT / name).read_text()) if language == "text"
    ]


def _is_kept(block, printed):
    lines = iter(printed.splitlines())
    for line in filter(str.strip, block.splitlines()):
        wanted = line.removesuffix(_LEFT_OUT)
        assert any(promises(wanted, each) for each in lines), f"{line!r} is not there in\n{printed}"


def test_every_page_that_shows_an_output_is_somebodys():
    pages = {path for path in DOCUMENTS if "```text\n" in path.read_text()} - FOLLOWED
    assert {str(path.relative_to(ROOT)) for path in pages} == {*ELSEWHERE, *HERE}


@pytest.mark.slow  # the table of a real model
def test_the_plan_says_what_a_stage_takes_of_a_gpu(tmp_path):
    tutorial = (ROOT / "docs/tutorials/gsm8k.md").read_text()
    (config,) = re.findall(r'```json title="qwen/config.json"\n(.*?)```', tutorial, re.DOTALL)
    (tmp_path / "config.json").write_text(config)
    words = ["plan", "recipes/gsm8k-qwen", "--memory", "--gpu", "16GB", "--model-config"]
    done = posttrain(*words, str(tmp_path), cwd=ROOT)
    assert done.returncode == 2
    table, refusal = _texts("docs/scale.md")
    _is_kept(table, done.stdout)
    # The sentence is one line, and the page breaks it.
    _is_kept(" ".join(refusal.split()), done.stderr)


@pytest.mark.slow  # a tiny model is trained two steps for every switch: half a minute
def test_a_check_of_methods_says_what_switches_do(tmp_path):
    assert posttrain("init", "demo", cwd=tmp_path).returncode == 0
    done = posttrain("method", "check", "grpo", "large_k", cwd=tmp_path / "demo")
    assert done.returncode == 0, done.stderr
    (table,) = _texts("docs/methods.md")
    _is_kept(table, done.stdout)


def test_a_line_that_is_not_printed_is_found():
    _is_kept("a b\nd, ...\n", "a  b\nc\nd, e\n")
    for block in ("b a\n", "d\na b\n", "e f"):
        with pytest.raises(AssertionError, match="is not there"):
            _is_kept(block, "a  b\nc\nd, e\n")
