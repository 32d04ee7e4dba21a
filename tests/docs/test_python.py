"""Python in the documents is run: a block is some other test's, or is run here."""

import ast
import inspect
import re
import shutil

import pytest

import posttrain as pt
from posttrain.pipeline.recipe import load_recipe
from tests.docs.test_snippets import BLOCK, DOCUMENTS, ROOT
from tests.docs.test_tutorials import FOLLOWED
from tests.forked import posttrain

ELSEWHERE = {
    "docs/extending.md": "tests/extend/test_examples.py: they are the files that the tests run",
    "docs/worlds.md": "tests/learning/episodes/test_worlds.py",
    "docs/coming-from.md": "tests/docs/test_coming_from.py: TRL's own, whose names are looked up",
}
HERE = ["docs/methods.md", "docs/python.md", "docs/recipes.md", "docs/sandbox.md"]


def _python(name):
    return [
        text for language, text in BLOCK.findall((ROOT / name).read_text()) if language == "python"
    ]


def test_every_page_with_python_is_somebodys():
    pages = {path for path in DOCUMENTS if "```python\n" in path.read_text()} - FOLLOWED
    assert {str(path.relative_to(ROOT)) for path in pages} == {*ELSEWHERE, *HERE}
    for where in ELSEWHERE.values():
        assert (ROOT / where.partition(":")[0]).is_file()


def test_calls_of_the_package_have_arguments_that_it_takes():
    (block,) = _python("docs/python.md")
    calls = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)]
    assert len(calls) == 9
    formats = set()
    for call in calls:
        function = getattr(pt, call.func.attr)
        values = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
        bound = inspect.signature(function).bind(*map(ast.literal_eval, call.args), **values)
        formats.add(bound.arguments.get("format"))
    said = inspect.getsource(pt.load)
    assert all(
        f'"{each}"' in said or f"{each}" in (pt.load.__doc__ or "") for each in formats - {None}
    )


def test_a_program_runs_in_the_sandbox():
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap")
    (block,) = _python("docs/sandbox.md")
    exec(compile(block, "docs/sandbox.md", "exec"), {})


def test_a_flow_of_rounds_has_the_stages_that_the_text_says(tmp_path, monkeypatch):
    (block,) = _python("docs/recipes.md")
    imports = """
from flows._beginning import begin_flow
from posttrain.pipeline.flow_builder import Round
from posttrain.pipeline.recipe import FlowBuilder
from posttrain.stage.spec import Reference
from tasks.probe import TASK as PROBE
from tasks.sft import TASK as SFT


"""
    assert block.count("    ...\n") == 1
    beginning = "    raw, data, base, policies = begin_flow(build)\n"
    (tmp_path / "shown_rounds.py").write_text(imports + block.replace("    ...\n", beginning))
    (tmp_path / "recipe.yaml").write_text("flow: shown_rounds\nformat: 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    stages = load_recipe(tmp_path).resolve(tmp_path).stages
    assert [name for name in stages if name.startswith(("probe", "sft"))] == [
        "probe_1", "sft_1", "probe_2", "sft_2", "probe_3", "sft_3",
    ]  # fmt: skip


@pytest.mark.slow  # two updates of a tiny model, four times
def test_the_formula_of_a_method_has_its_gradients(tmp_path):
    done = posttrain("init", "demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "demo/methods/pg"
    folder.mkdir(parents=True)
    for _, text in BLOCK.findall((ROOT / "docs/methods.md").read_text()):
        if found := re.match(r"# methods/pg/(\w+\.(?:py|yaml))\n", text):
            (folder / found[1]).write_text(text)
    assert {path.name for path in folder.iterdir()} == {"careful.yaml", "formulas.py"}
    done = posttrain("method", "check", "--gradients", "careful", cwd=tmp_path / "demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 method has the gradients of its formula" in done.stdout
