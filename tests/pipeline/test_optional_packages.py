"""A package of an extra is in the keys of the stages whose parameters ask for it alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from posttrain.pipeline import stage_keys
from posttrain.pipeline.execution.session import open_session
from posttrain.provenance.code import optional
from posttrain.stage.errors import UserError

ROOT = Path(__file__).parents[2]
EXTRAS = {"bitsandbytes", "peft", "vllm"}


def packages(project, *overrides):
    """Packages of extras in the closure of each stage of the default recipe."""
    with open_session(project, overrides) as session:
        return {
            name: set(session.planner.keys.closure(name).packages & EXTRAS)
            for name in session.dag.stages
        }


@pytest.fixture
def default(tmp_path):
    """A project with the default recipe, of which nothing has run."""
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "recipe.yaml").write_text((ROOT / "recipe.yaml").read_text())
    (tmp_path / "data").symlink_to(ROOT / "data")
    return tmp_path


@pytest.mark.slow
def test_the_default_recipe_has_no_use_for_an_extra(default):
    assert optional("posttrain") >= EXTRAS
    assert set().union(*packages(default).values()) == set()


@pytest.mark.slow
def test_what_the_parameters_ask_for_is_in_the_key_of_that_stage_alone(default):
    found = packages(default, "sft.learner.lora.rank=4", "probe.engine=vllm")
    assert found.pop("sft") == {"peft"}
    assert found.pop("probe") == {"vllm"}
    assert set().union(*found.values()) == set()


@pytest.mark.slow
def test_weights_of_4_bits_ask_for_what_quantizes_them(default):
    found = packages(default, "sft.learner.lora.rank=4", "sft.learner.weights=nf4")
    assert found.pop("sft") == {"bitsandbytes", "peft"}
    assert set().union(*found.values()) == set()


def test_what_a_projects_own_code_imports_later_always_counts(toy, edit):
    edit(toy.root / toy.package / "stage.py", "def run(", "def load():\n    import peft\ndef run(")
    edit(
        toy.root / toy.package / "stage.py", 'return {"sum"', 'load if 0 else 0\n    return {"sum"'
    )
    with open_session(toy.root) as session:
        assert "peft" in session.planner.keys.closure("first").packages


def test_a_package_that_comes_in_against_the_parameters_fails_the_stage(toy, edit, monkeypatch):
    # As if a config of the framework's had forgotten to say what it leads to.
    edit(toy.root / toy.package / "stage.py", "def run(", "def load():\n    import wave\ndef run(")
    edit(toy.root / toy.package / "stage.py", 'return {"sum"', 'load()\n    return {"sum"')
    unused = frozenset({"wave"})
    monkeypatch.setattr(stage_keys, "_with_packages_in_use", lambda c, _: replace(c, unused=unused))
    with pytest.raises(UserError, match="imported wave, which nothing in its parameters asks"):
        toy.run()
