"""Every block of code in the documents is of the language that it says."""

import ast
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for place in ("*.md", "docs/**/*.md", "benchmarks/*/*.md", "recipes/*/*.md")
    for path in ROOT.glob(place)
)
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def parse_yaml(text):
    # Some show one key in several spellings, below each other.
    reader = YAML(typ="safe")
    reader.allow_duplicate_keys = True
    reader.load(text)


def parse_bash(text):
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(done.stderr)


PARSERS = {
    "python": ast.parse,
    "yaml": parse_yaml,
    "json": json.loads,
    "toml": tomllib.loads,
    "bash": parse_bash,
    "sh": parse_bash,
    # Output, and commands without a language: test_documents.py looks for these.
    "text": str,
    "": str,
}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_are_of_their_language(path):
    for language, text in BLOCK.findall(path.read_text()):
        assert language in PARSERS, f"nobody looks at {language}"
        PARSERS[language](text)


def test_what_is_no_yaml_is_found():
    with pytest.raises(Exception, match="mapping values"):
        parse_yaml("a: b: c")
    with pytest.raises(ValueError, match="syntax error"):
        parse_bash("if true; do")
