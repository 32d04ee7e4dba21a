"""Commands in the documents are parsed by the programs that they are for, with every argument."""

import importlib.util
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement

from posttrain.cli.main import cli
from posttrain.pipeline.recipe import load_recipe
from tests.docs.test_snippets import BLOCK, DOCUMENTS, ROOT
from tests.docs.test_tutorials import FOLLOWED

HERE_DOCUMENT = re.compile(r"( ?<<'?(\w+)'?)\n.*?^\2$", re.DOTALL | re.MULTILINE)
ASSIGNED = re.compile(r"[A-Z_]+=.*")
_SHELL = ("", "bash", "sh")
"""Languages of blocks that hold commands."""
_WORDS_OF_SHELLS = {"for", "done", "export", "cd", "source"}
_OTHERS = {
    "git": "everybody's",
    "cat": "of every system",
    "inspect": "another package's; its task is run by tests/tasks/test_inspect_ai.py",
    "tensorboard": "another package's",
    "cp": "of every system",
    "mkdir": "of every system",
    "printf": "of every system",
    "apt-get": "Debian's; tests/operations/project/test_container.py runs what the Dockerfile has",
    "docker": "needs a Docker engine; its build is followed by test_container.py",
    "sqlite3": "asks for databases of a run: tests/operations has the backups",
    "pg_dump": "asks for a server",
    "pg_restore": "asks for a server",
    "hf": "asks the hub",
    "pre-commit": "installs hooks into a clone",
    "python3": "another tool's, for comparison: docs/coming-from.md",
}
"""Programs whose arguments nobody looks at here, with the reason."""


def _words(line):
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    return [*lexer]


def commands(block):
    """The simple commands of a block, as words, without what a comment says of them."""
    line = ""
    for each in HERE_DOCUMENT.sub("\\1", block.replace("\\\n", " ")).splitlines():
        line = f"{line}\n{each}".lstrip("\n")
        try:
            found = _words(line)
        except ValueError:  # a quotation that goes on in the next line
            continue
        line = ""
        words = []
        for word in [*found, ";"]:
            if set(word) <= set(";&|"):
                if words[:1] == ["do"]:
                    words = words[1:]
                while words and ASSIGNED.fullmatch(words[0]):
                    words = words[1:]
                if words:
                    yield words
                words = []
            else:
                words.append(word)


def every_command():
    for path in DOCUMENTS:
        if path in FOLLOWED:
            continue
        blocks = BLOCK.findall(path.read_text())
        for block in (text for language, text in blocks if language in _SHELL):
            for words in commands(block):
                # MLflow takes three seconds to be imported.
                marks = [pytest.mark.slow] if words[0] == "mlflow" else []
                name = f"{path.relative_to(ROOT)}: {' '.join(words)[:60]}"
                yield pytest.param(words, id=name, marks=marks)


def parse_with_click(command, words):
    """Let click read words as it would when the command is started, and run nothing."""
    try:
        context = command.make_context(words[0], list(words[1:]))
        while isinstance(command, click.Group) and (
            rest := [*context._protected_args, *context.args]
        ):
            name, command, rest = command.resolve_command(context, rest)
            context = command.make_context(name, rest, parent=context)
    except click.exceptions.Exit:  # --help, --version
        return {}
    return context.params


def parse_posttrain(words):
    if {"[", "]", "..."} & set("".join(words)) and any(word.startswith("[") for word in words):
        return  # a synopsis, of which test_documents.py looks at the options
    if any("|" in word and "=" not in word for word in words):
        return
    try:
        given = parse_with_click(cli, words)
    except click.exceptions.BadParameter as error:
        # A folder that the reader has, or that stands for one.
        if not str(error).endswith("does not exist."):
            raise
        return
    if overrides := given.get("overrides"):
        place = ROOT / str(given.get("recipe") or ".")
        recipe = load_recipe(place if place.exists() else ROOT, overrides)
        assert recipe.resolve(ROOT).stages


def parse_make(words):
    text = (ROOT / "Makefile").read_text()
    for target in (word for word in words[1:] if "=" not in word):
        assert re.search(rf"^{re.escape(target)}:", text, re.MULTILINE), target


def parse_python(words):
    if words[1] == "-c":
        compile(words[2], "<document>", "exec")
        return
    assert words[1] == "-m", words
    found = importlib.util.find_spec(words[2])
    if found is not None and found.submodule_search_locations:
        found = importlib.util.find_spec(f"{words[2]}.__main__")
    assert found is not None, words[2]
    source = Path(found.origin).read_text()
    for flag in (word for word in words[3:] if word.startswith("--")):
        assert f'"{flag}"' in source, flag


def parse_installation(words):
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for word in words[words.index("install") + 1 :]:
        if named := re.fullmatch(r"(?:posttrain|\.)(\[.*\])(.*)", word):
            extras = Requirement(f"posttrain{named[1]}").extras
            assert extras <= known["optional-dependencies"].keys(), word


def parse_dvc(words):
    from dvc.cli.parser import get_main_parser

    get_main_parser().parse_args(words[1:])


def parse_mlflow(words):
    from mlflow.cli import cli as mlflow

    parse_with_click(mlflow, words)


PARSERS = {
    "posttrain": parse_posttrain,
    "make": parse_make,
    "python": parse_python,
    "pip": parse_installation,
    "uv": parse_installation,
    "dvc": parse_dvc,
    "mlflow": parse_mlflow,
}


@pytest.mark.parametrize("words", every_command())
def test_a_command_is_parsed(words):
    if words[0] in _OTHERS or words[0] in _WORDS_OF_SHELLS:
        return
    assert words[0] in PARSERS, f"nobody looks at {words[0]}"
    PARSERS[words[0]](words)


def test_commands_are_found_in_loops_and_behind_comments():
    block = "a b  # c; d\nfor x in y; do\n  e 'f; g' \\\n    h\ndone\ni && j | k\n"
    assert [*commands(block)] == [
        ["a", "b"], ["for", "x", "in", "y"], ["e", "f; g", "h"], ["done"], ["i"], ["j"], ["k"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("posttrain rows", "Missing parameter"),
        ("posttrain init mine --ci gitea", "is not one of 'github', 'gitlab'"),
        ("posttrain run --set rl.learning_rat=1", "learning_rat"),
        ("posttrain lineage upp", "upp"),
        ("make nothing", "nothing"),
        ("python -m benchmarks.nothing", "benchmarks.nothing"),
        ("python -m benchmarks.ui --nothing", "--nothing"),
        ("pip install 'posttrain[nothing]'", "nothing"),
        ("dvc nothing", "parser error"),
    ],
)
def test_a_command_that_is_wrong_is_found(line, said):
    words = shlex.split(line)
    with pytest.raises(Exception, match=re.escape(said)):
        PARSERS[words[0]](words)
