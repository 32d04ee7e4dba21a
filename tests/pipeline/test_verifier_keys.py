"""A stage that scores answers hangs on the verifiers that its problems name, and on no others."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from posttrain.learning.rewards.verifiers.registry import VERIFIERS as REGISTRY
from posttrain.pipeline.plan import Planner
from posttrain.pipeline.recipe import load_recipe
from posttrain.pipeline.stage_keys import INTERFACE
from posttrain.pipeline.verifiers import verifier_digest
from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.code import CodeReader
from posttrain.provenance.ledger import ArtifactRecord

ROOT = Path(__file__).parents[2]
VERIFIERS = "posttrain.learning.rewards.verifiers"
TABLES = {"gym": ["reasoning_gym"], "two": ["exact", "numeric"]}


@pytest.fixture(scope="module")
def planner(tmp_path_factory):
    def parts_of(digests):
        return {
            table: tuple(
                ArtifactRecord("verifier", "verifier", f"verifier:{name}", "", 0)
                for name in TABLES[table]
            )
            for table in digests
            if table in TABLES
        }

    recipe = load_recipe(ROOT)
    workspace = Workspace.of(recipe)
    ledger = SimpleNamespace(compositions=SimpleNamespace(parts_of=parts_of))
    made = Planner(recipe, recipe.resolve(ROOT), workspace, ledger, None, None)
    # What the reader keeps between runs goes nowhere near the checkout.
    code, packages = tmp_path_factory.mktemp("code"), workspace.packages()
    made._reader = CodeReader(ROOT, packages=packages, outside=INTERFACE, cache=code)
    return made


def verifiers(planner, stage, inputs=None):
    symbols = planner.keys.closure(stage, inputs).symbols
    return {
        symbol.removeprefix(f"{VERIFIERS}.").partition(":")[0]
        for symbol in symbols
        if symbol.startswith(f"{VERIFIERS}.") and symbol.endswith("Verifier")
    } - {"base", "comparing", "sandboxed"}


@pytest.mark.parametrize("stage", ["probe", "rl", "evaluate"])
def test_they_are_those_of_the_tables_of_problems(planner, stage):
    known = {"problems": "gym", "policy": "two"}
    assert verifiers(planner, stage, known) == {"reasoning_gym"}
    assert verifiers(planner, stage, {"problems": "two"}) == {"exact", "numeric"}
    every = {part.__module__.rpartition(".")[2] for part in REGISTRY.parts.values()}
    assert every > {"exact", "format", "judge", "numeric", "reasoning_gym"}
    # A table of which nothing is known may name any, and so may one that is not there yet.
    assert verifiers(planner, stage, {"problems": "unknown"}) == every
    assert verifiers(planner, stage) == every


@pytest.mark.parametrize("stage", ["synthesize", "probe", "rl", "evaluate"])
def test_no_verifier_loads_modules_by_names_that_only_a_run_knows(planner, stage):
    # A stage that does may read every first-party file, and dvc.yaml names them all.
    assert not planner.keys.closure(stage).loads_by_name


def test_the_program_that_compares_mathematics_counts(planner):
    symbols = planner.keys.closure("rl").symbols
    assert f"{VERIFIERS}.math_worker:answer_questions" in symbols


@pytest.mark.parametrize("stage", ["probe", "rl", "evaluate"])
def test_they_are_those_that_stand_beside_the_problems(planner, stage):
    beside = {"problems": "unknown", "verifiers": "two"}
    assert verifiers(planner, stage, beside) == {"exact", "numeric"}
    # Rows of older tables name their own.
    assert verifiers(planner, stage, {"problems": "gym", "verifiers": "two"}) == {
        "exact",
        "numeric",
        "reasoning_gym",
    }
    assert planner.dag.stages[stage].inputs["verifiers"].stage == "synthesize"


def test_a_stage_that_scores_nothing_hangs_on_none(planner):
    assert verifiers(planner, "sft", {"traces": "two"}) == set()
    assert verifiers(planner, "curate") == set()


def test_the_source_of_the_problems_hangs_on_the_verifiers_that_its_parameters_name(planner):
    assert verifiers(planner, "synthesize", {}) == {"reasoning_gym"}


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        ("numeric", "d3382250bd1acb1b"),
        ("exact", "4e17e29e26ff8dba"),
        ("format", "7374ba29ccb4eb2c"),
    ],
)
def test_a_verifier_is_the_same_as_long_as_it_scores_the_same(planner, kind, digest):
    """A recall names verifiers by these digests, so another one means that scores may differ."""
    assert verifier_digest(planner.keys.reader, kind).startswith(digest)
