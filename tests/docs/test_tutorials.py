"""Tutorials and how-to pages, followed as they stand: files, commands, promised lines."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from posttrain.pipeline.recipe import load_recipe

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RUN = [
    "tutorials/own-data", "tutorials/own-reward", "tutorials/own-stage", "how-to/own-verifier",
    "how-to/serve", "how-to/lm-eval",
]  # fmt: skip
BESIDE = {"how-to/inspect": "inspect_ai"}
"""Pages that want what pip does not install beside the tested set: requirements-inspect.txt."""
PLANNED = ["tutorials/gsm8k", "how-to/own-flow"]
FOLLOWED = {DOCS / f"{name}.md" for name in (*RUN, *PLANNED)}
"""Pages of which every block is written, run or compared here."""
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block of code: its language, the file that it is, its text."""

    language: str
    file: str
    text: str


def blocks(name):
    return [Block(*found) for found in _BLOCK.findall((DOCS / f"{name}.md").read_text())]


def run(block, folder):
    """Run a block of commands; what it printed, and the folder that it ends in."""
    beside = folder / ".where"
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": paths, "COLUMNS": "160", "OMP_NUM_THREADS": "1"}
    env.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run(
        ["bash", "-e", "-c", f'{block.text}\npwd > "{beside}"'],
        cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{block.text}\n{done.stdout}"
    ends = Path(beside.read_text().strip())
    beside.unlink()
    return done.stdout, ends


def promises(line, printed):
    """Whether a printed line has the words of a promised one in their order; times lie between."""
    return re.search(".*".join(map(re.escape, line.split())), printed) is not None


def follow(name, folder):
    """Do what a tutorial says, and look for the lines that it promises in their order."""
    said = ""
    for block in blocks(name):
        if block.file:
            file = folder / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
        elif block.language == "bash":
            said, folder = run(block, folder)
        else:
            assert block.language == "text", f"nobody runs {block.language}"
            printed = iter(said.splitlines())
            for line in block.text.splitlines():
                found = any(promises(line, each) for each in printed)
                assert found, f"{line!r} is promised and not (or not there) in\n{said}"
    return folder


@pytest.mark.slow  # each runs a pipeline or two: a minute by itself
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [*RUN, "how-to/own-flow"])
def test_a_tutorial_runs_as_it_is_written(name, tmp_path):
    follow(name, tmp_path)


@pytest.mark.slow  # one more
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "package"), BESIDE.items())
def test_a_page_about_what_is_beside_the_tested_set_runs_as_it_is_written(name, package, tmp_path):
    pytest.importorskip(package, reason=f"{package} is not installed here; run: make test")
    follow(name, tmp_path)


@pytest.mark.slow  # seven commands
def test_the_plan_for_a_real_model_is_as_written_and_the_recipe_is_the_shipped_one(tmp_path):
    project = follow("tutorials/gsm8k", tmp_path)
    own = load_recipe(project / "recipes" / "gsm8k").resolve(ROOT)
    shipped = load_recipe(ROOT / "recipes" / "gsm8k-qwen").resolve(ROOT)
    assert own.stages.keys() == shipped.stages.keys()
    for name, stage in own.stages.items():
        assert stage.config == shipped.stages[name].config, name


def test_every_page_with_a_pipeline_to_follow_is_followed():
    pages = [*DOCS.glob("tutorials/*.md"), *DOCS.glob("how-to/*.md")]
    named = {path.relative_to(DOCS).with_suffix("").as_posix() for path in pages}
    assert named == {*RUN, *PLANNED, *BESIDE, "tutorials/index", "how-to/index"}
    for name in (*RUN, *PLANNED, *BESIDE):
        assert any(each.language == "bash" for each in blocks(name)), name


def test_a_promise_that_is_not_kept_is_found():
    assert promises("sft run it never ran", "sft      run     0.3 s   it never ran")
    assert not promises("sft run it never ran", "sft      run     it has run")
    assert not promises("run sft", "sft run")
