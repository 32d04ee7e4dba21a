"""Programs of the system that a recipe's verifiers start: looked for before anything runs."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from posttrain.backends.sandbox import launch
from posttrain.cli.main import cli
from posttrain.operations.maintenance.checks import machine as checks
from posttrain.operations.maintenance.checks.finding import CheckScope
from posttrain.pipeline import programs
from posttrain.pipeline.programs import absent_programs, programs_of
from posttrain.pipeline.recipe import load_recipe
from posttrain.stage.errors import UserError
from posttrain.stage.extras import package_line

ROOT = Path(__file__).parents[2]
RECIPE = """\
flow: flows.post_training
format: 3
synthesize:
  sources:
  - {kind: jsonl, name: designs, path: d.jsonl, verifier: VERIFIER}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project whose recipe has the verifier, on a machine that has the programs."""

    def make(verifier, *installed):
        (tmp_path / "recipe.yaml").write_text(RECIPE.replace("VERIFIER", verifier))
        (tmp_path / "d.jsonl").write_text('{"prompt": "p", "answer": "1", "solution": "1"}\n')
        (tmp_path / ".dvc").mkdir(exist_ok=True)
        monkeypatch.setattr(shutil, "which", lambda name, path="": name in installed or None)
        return tmp_path

    return make


def needed(folder):
    return programs_of(load_recipe(folder).resolve(ROOT))


def test_a_verifier_that_runs_programs_needs_the_sandbox_and_its_own(project):
    sandbox = {"bwrap": ("synthesize", "apt-get install bubblewrap")}
    assert needed(project("numeric")) == {}
    assert needed(project("python_tests")) == sandbox
    verilog = {**sandbox, "iverilog": ("synthesize", "apt-get install iverilog")}
    assert needed(project("verilog")) == verilog
    assert list(absent_programs(needed(project("verilog", "bwrap")))) == [
        ("synthesize needs iverilog, which is not installed", "apt-get install iverilog")
    ]
    assert list(absent_programs(needed(project("verilog", "bwrap", "iverilog")))) == []


def test_doctor_names_what_is_missing_with_the_line_that_installs_it(project, monkeypatch):
    def found(verifier, *installed):
        folder = project(verifier, *installed)
        return [
            (each.state, each.says, each.remedy) for each in checks.programs(CheckScope(folder))
        ]

    monkeypatch.setattr(checks, "_sandbox_refused", lambda: "")
    assert found("numeric") == []
    (one,) = found("verilog", "bwrap")
    assert one == (
        "warning",
        "synthesize needs iverilog, which is not installed",
        "apt-get install iverilog",
    )
    assert found("verilog", "bwrap", "iverilog") == [("ok", "with bwrap, iverilog", "")]
    monkeypatch.setattr(checks, "_sandbox_refused", lambda: "bubblewrap cannot make a sandbox here")
    (one,) = found("python_tests", "bwrap")
    assert one[:2] == ("warning", "bubblewrap cannot make a sandbox here")
    # What is wrong with a recipe, plan and run say; and there may be none.
    file = project("verilog") / "recipe.yaml"
    file.write_text("flow: nowhere\n")
    assert list(checks.programs(CheckScope(file.parent))) == []
    file.unlink()
    assert list(checks.programs(CheckScope(file.parent))) == []


def test_a_sandbox_that_cannot_start_is_told(monkeypatch):
    def refuse(_):
        raise UserError("not permitted")

    monkeypatch.setattr(checks, "Sandbox", type("Box", (), {"__init__": refuse}))
    assert checks._sandbox_refused() == "not permitted"


def test_plan_names_what_is_missing(project, monkeypatch):
    monkeypatch.chdir(project("verilog", "bwrap"))
    said = CliRunner().invoke(cli, ["plan"]).output
    line = "note: synthesize needs iverilog, which is not installed; run: apt-get install iverilog"
    assert line in said.splitlines()
    assert launch.BUBBLEWRAP not in said


def test_plan_names_a_package_that_a_world_needs(project, monkeypatch):
    monkeypatch.chdir(project("numeric"))
    recipe = RECIPE.partition("  - {kind")[0] + "  - {kind: world, world: facts}\n"
    recipe = recipe.replace("post_training", "play")
    Path("recipe.yaml").write_text(
        recipe
        + "rl: {producer: {kind: episodes, environment: facts}}\nevaluate: {environment: facts}\n"
    )
    monkeypatch.setattr(programs, "is_installed", lambda name: name != "bm25s")
    told = CliRunner().invoke(cli, ["plan"]).output.splitlines()
    line = "note: synthesize needs bm25s, which is not installed; run: pip install"
    assert [each for each in told if each.startswith(line)], told


def test_vllm_is_installed_as_the_readme_has_it():
    """By uv: pip finds no versions of vLLM's packages and of Prefect's that go together."""
    line, _, _ = package_line("vllm").partition(" in a clone")
    assert line == "uv pip install --editable '.[vllm]'"
    assert f"`{line}`" in (ROOT / "README.md").read_text()


def test_vllm_of_a_processor_is_installed_otherwise(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "is_installed", lambda name: name != "vllm")
    (tmp_path / "recipe.yaml").write_text("flow: flows.post_training\nrl: {engine: vllm}\n")
    dag = load_recipe(tmp_path).resolve(ROOT)
    (on_cpu,), (on_gpu,) = (list(programs.absent_packages(dag, each)) for each in ("cpu", "cuda"))
    assert on_cpu == (
        "rl needs vllm, which is not installed",
        "pip install --no-deps --requirement requirements-engines.txt in a clone of posttrain",
    )
    assert on_gpu[1] == package_line("vllm") != on_cpu[1]


def test_flash_attention_without_its_package_is_a_note(tmp_path):
    def absent(learner):
        (tmp_path / "recipe.yaml").write_text(f"flow: flows.post_training\nformat: 3\n{learner}\n")
        return list(programs.absent_packages(load_recipe(tmp_path).resolve(ROOT), "cuda"))

    assert absent("sft: {learner: {attention: sdpa}}") == []
    assert absent("sft: {learner: {attention: flash_attention_2}}") == [
        (
            "sft needs flash-attn, which is not installed",
            "pip install flash-attn --no-build-isolation",
        )
    ]
