"""Extras of the package: which can be installed together, by pip alone."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
APART = {"vllm": "its fastapi is older than Prefect's", "test": "pins what only tests need"}
"""Extras that stand beside the others, with the reason."""


def asked(extras, *options):
    """What pip would install for some extras, or what it says against it; nothing is installed."""
    command = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-", *options]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *command, f"{ROOT}[{','.join(extras)}]"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout[done.stdout.index("{") :])["install"]
    return {each["metadata"]["name"].lower(): each["metadata"]["version"] for each in found}


def test_a_page_says_of_every_extra_what_it_is_for():
    page = (ROOT / "docs/platforms.md").read_text()
    listed = page.partition("## Extras")[2].partition("\n## ")[0]
    assert [name for name in EXTRAS if f"| `{name}`" not in listed] == []


@pytest.mark.slow  # a minute: pip reads what some three hundred packages ask for
@pytest.mark.timeout(900)
def test_all_extras_but_those_that_stand_apart_are_installed_together():
    names = sorted(EXTRAS.keys() - APART.keys())
    found = asked(names)
    assert {"verifiers", "textworld", "ray", "peft", "mkdocs-material"} <= found.keys()
    assert found["torch"].partition("+")[0] == "2.13.0"
    assert "vllm" not in found


@pytest.mark.slow  # as above
@pytest.mark.timeout(900)
def test_in_the_tested_versions_all_but_two_are():
    names = sorted(EXTRAS.keys() - APART.keys() - {"verifiers", "inspect"})
    found = asked(names, "--constraint", str(ROOT / "constraints.txt"))
    pinned = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    )
    assert found["prefect"] == pinned["prefect"]
