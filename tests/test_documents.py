"""What the documents name is there: commands with their options, recipes, folders, files, tests."""

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
from packaging.version import Version

from posttrain import __version__
from posttrain.cli.main import VERBS
from posttrain.pipeline.recipe import load_recipe

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    [
        path
        for place in ("*.md", "docs/**/*.md", "benchmarks/*/*.md", "recipes/*/*.md")
        for path in ROOT.glob(place)
    ]
)
NAMED = [str(path.relative_to(ROOT)) for path in DOCUMENTS]


def test_the_version_is_stated_once_and_the_changelog_says_whether_it_is_released():
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert stated == __version__
    text = (ROOT / "CHANGELOG.md").read_text()
    released = [Version(each) for each in re.findall(r"^## \[(\d[^]]*)\]", text, re.MULTILINE)]
    version = Version(__version__)
    if version.is_devrelease:
        assert version > released[0]
        assert "## [Unreleased]" in text
    else:
        assert version == released[0]


def commands(text):
    """The command lines of a document: `posttrain ...` in a block or in the running text."""
    text = text.replace("\\\n", " ")
    blocks = re.findall(r"```[a-z]*\n(.*?)```", text, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`(posttrain [^`\n]+)`", text)
    for line in lines:
        for part in re.split(r";|&&", line.partition("  ")[0].partition("#")[0]):
            if part.strip().startswith("posttrain "):
                yield part.strip()


def loaded(name):
    """The click command of a verb."""
    for section in VERBS.values():
        if name in section:
            return section[name].load()
    return None


def problem(line):
    """What is wrong with a command line; empty where nothing is."""
    words = shlex.split(line.replace("[", " ").replace("]", " "))[1:]
    if not words or words[0].startswith("-") or words[0].isupper():
        return ""
    command = loaded(words[0])
    if command is None:
        return f"there is no verb {words[0]}"
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        names = [each for each in rest[0].split("|") if each]
        if names[0].isupper() or names[0] == "...":
            return ""
        if unknown := [each for each in names if each not in command.commands]:
            return f"{command.name} has no {unknown[0]}"
        command, rest = command.commands[names[0]], rest[1:]
    options = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)}
    given = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    return (
        f"no option {sorted(given - options - {'--help'})}" if given - options - {"--help"} else ""
    )


@pytest.mark.parametrize("name", NAMED)
def test_commands_exist_with_their_options(name):
    found = {line: problem(line) for line in commands((ROOT / name).read_text())}
    assert {line: what for line, what in found.items() if what} == {}


@pytest.mark.parametrize("name", NAMED)
def test_links_lead_somewhere(name):
    text = re.sub(r"```.*?```", "", (ROOT / name).read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    files = {link.partition("#")[0] for link in links if "://" not in link} - {""}
    gone = {each for each in files if not (ROOT / name).parent.joinpath(each).exists()}
    assert gone == set()


@pytest.mark.parametrize("name", NAMED)
def test_tests_that_are_named_exist(name):
    text = (ROOT / name).read_text()
    sources = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    files = set(re.findall(r"\btest_\w+\.py\b", text))
    assert sorted(files - sources.keys()) == []
    every = "\n".join(sources.values())
    functions = set(re.findall(r"::(test_\w+)", text))
    assert [each for each in sorted(functions) if f"def {each}(" not in every] == []


def test_the_recipes_of_the_readme_are_of_today(tmp_path, capsys):
    whole, *parts = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert whole.count("path:") == 2
    assert parts
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k" / "train.jsonl").touch()
    (tmp_path / "models" / "Qwen2.5-0.5B").mkdir(parents=True)
    (tmp_path / "pairs.jsonl").touch()
    head = "flow: flows.post_training\nformat: 3\n"
    own = [part if part.startswith("flow:") else head + part for part in parts]
    for number, text in enumerate([whole, *own]):
        folder = tmp_path / "recipes" / str(number)
        folder.mkdir(parents=True)
        (folder / "recipe.yaml").write_text(text)
        assert {"rl", "reward"} & load_recipe(folder).resolve(ROOT).stages.keys()
    # Where a spelling is an older one, that is said.
    assert capsys.readouterr().err == ""


def test_the_tree_of_the_readme_has_every_folder():
    tree = (ROOT / "README.md").read_text().partition("## The tree")[2].partition("\n## ")[0]
    folders = {
        path.parent.name
        for pattern in (
            "*/*.py",
            "*/*.md",
            "posttrain/*/__init__.py",
            "posttrain/learning/*/__init__.py",
        )
        for path in ROOT.glob(pattern)
        if path.parent.name[0] not in "._"
    }
    assert {"examples", "docs", "stage", "curriculum"} <= folders
    assert sorted(name for name in folders if f"{name}/" not in tree) == []


def test_a_command_that_is_wrong_is_found():
    assert problem("posttrain runn") == "there is no verb runn"
    assert problem("posttrain run --unheard-of 3") == "no option ['--unheard-of']"
    assert problem("posttrain run --set rl.learning_rate=5e-4") == ""
