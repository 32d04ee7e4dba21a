"""Recipes of older formats go on working; those of newer ones are refused."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.rewards.verifiers.exact import ExactVerifier
from posttrain.learning.rewards.verifiers.judge import JudgeVerifier
from posttrain.pipeline.recipe import load_recipe
from posttrain.pipeline.recipe_formats import FORMAT, migrate, migrate_release
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.spec import Task
from tasks.curate import TASK as CURATE
from tasks.curate.config import CurateConfig
from tasks.preference import TASK as PREFERENCE
from tasks.rl import TASK as RL
from tasks.rl.config import RlStageConfig
from tasks.synthesize import TASK as SYNTHESIZE
from tasks.synthesize.config import SynthesizeConfig

TASKS = {"curate": CURATE, "rl": RL, "synthesize": SYNTHESIZE}
ROOT = Path(__file__).parents[2]
OLD = sorted((Path(__file__).parent / "recipes_0_1").iterdir())
RENAMES = {
    "*.optimisation": "*.optimization",
    "*.optimization.sched": "*.schedule",
    "*.sources.*.name": "*.sources.*.label",
    "*.engine.name": "*.engine.kind",
}


@pytest.mark.parametrize("folder", OLD, ids=lambda folder: folder.name)
def test_a_recipe_of_0_1_still_resolves(folder):
    dag = load_recipe(folder).resolve(ROOT)
    assert {"sft", "probe", "evaluate", "rl"} <= dag.stages.keys()


def test_fields_are_renamed_wherever_they_are():
    old = {
        "flow": "flows.x",
        "rl": {"optimisation": {"sched": "cosine", "rate": 1}, "engine": {"name": "vllm"}},
        "synthesize": {"sources": [{"name": "a"}, {"label": "b"}], "engine": "torch"},
    }
    migrated = migrate(old, {}, renames=RENAMES, respelled={}, gone={})
    assert migrated.values == {
        "flow": "flows.x",
        "rl": {"optimization": {"rate": 1}, "schedule": "cosine", "engine": {"kind": "vllm"}},
        "synthesize": {"sources": [{"label": "a"}, {"label": "b"}], "engine": "torch"},
    }
    assert migrated.changes == (
        "rl.optimisation is now rl.optimization",
        "rl.optimization.sched is now rl.schedule",
        "synthesize.sources.0.name is now synthesize.sources.0.label",
        "rl.engine.name is now rl.engine.kind",
    )
    # What was read is as it was, and what is of today stays.
    assert old["rl"]["engine"] == {"name": "vllm"}
    again = migrate(migrated.values, {}, renames=RENAMES, respelled={}, gone={})
    assert again.values == migrated.values
    assert again.changes == ()


def test_values_are_respelled_and_fields_dropped():
    values = {"rl": {"kind": "group", "also": ["group"], "noise": 0}, "sft": {"kind": "other"}}
    migrated = migrate(
        values,
        {},
        renames={},
        respelled={"*.kind": {"group": "mean"}, "*.also.*": {"group": "mean"}},
        gone={"*.noise": "as nothing read it"},
    )
    assert migrated.values == {"rl": {"kind": "mean", "also": ["mean"]}, "sft": {"kind": "other"}}
    assert migrated.changes == (
        "rl.kind: group is now mean",
        "rl.also.0: group is now mean",
        "rl.noise is left out, as nothing read it",
    )


def test_the_judge_of_a_source_becomes_its_verifier():
    judge = {"endpoint": {"base_url": "http://127.0.0.1:1/v1", "model": "m"}, "accept": 8}
    sources = [
        {"kind": "jsonl", "name": "a", "path": "a", "verifier": "judge", "judge": judge},
        {"kind": "jsonl", "name": "b", "path": "b", "verifier": "exact", "judge": None},
    ]
    migrated = migrate({"synthesize": {"sources": sources}}, TASKS)
    first, second = SynthesizeConfig.parse(migrated.values["synthesize"], where="s").sources
    assert first.verifier == JudgeVerifier.parse(judge, where="judge")
    assert second.verifier == ExactVerifier()


def test_the_flat_fields_of_curate_become_those_of_its_filters():
    flat = {
        "prompt_chars": [2, 100],
        "require_verified": False,
        "exact_duplicates": True,
        "near_duplicate_similarity": None,
        "near_duplicate_shingle": 4,
        "contamination_ngram": 8,
        "contamination_boilerplate": 5,
        "difficulty_range": None,
        "max_per_bucket": 7,
        "order": "mixed",
    }
    curated = migrate({"curate": flat}, TASKS).values["curate"]
    assert curated == {
        "order": "mixed",
        "problem_filters": {
            "prompt_length": {"least": 2, "most": 100},
            "exact_duplicates": {},
            "near_duplicates": None,
            "contamination": {"ngram": 8, "boilerplate": 5},
            "difficulty_range": {"least": None, "most": None},
            "bucket_size": {"most": 7},
        },
        "trace_filters": {"verified": None},
    }
    CurateConfig.parse(curated, where="curate")


def test_a_teacher_has_a_kind_and_a_file_nothing_of_the_hub():
    endpoint = {"base_url": "http://localhost/v1", "model": "m"}
    file = {"kind": "jsonl", "name": "own", "path": "x", "split": "train", "revision": None}
    old = {"teacher": {"endpoint": endpoint}, "error_rate": 0.1, "sources": [file]}
    made = migrate({"synthesize": old}, TASKS).values["synthesize"]
    assert made == {
        "teacher": {"kind": "server", "endpoint": endpoint},
        "sources": [{"kind": "jsonl", "name": "own", "path": "x"}],
    }
    SynthesizeConfig.parse(made, where="synthesize")
    flat = {"teacher": None, "error_rate": 0.1}
    programs = migrate({"synthesize": flat}, TASKS).values["synthesize"]
    assert programs == {"teacher": {"kind": "programs", "error_rate": 0.1}}


def test_a_field_given_under_both_names_is_refused():
    both = {"rl": {"engine": {"name": "vllm", "kind": "torch"}}}
    with pytest.raises(UserError, match=r"rl\.engine\.name is today called rl\.engine\.kind, and"):
        migrate(both, {}, renames=RENAMES)


def test_a_recipe_that_is_translated_says_so_once(toy, monkeypatch, capsys):
    monkeypatch.setattr(
        "posttrain.pipeline.stage_section.migrate",
        lambda values, tasks, **_: migrate(values, tasks, renames={"*.sum": "*.amount"}),
    )
    toy.recipe("second: {sum: 5}\n")
    assert load_recipe(toy.root).resolve(toy.root).stages["second"].config.amount == 5
    changed = load_recipe(toy.root, ["third.sum=3"]).resolve(toy.root)
    assert changed.stages["third"].config.amount == 3
    (notice,) = capsys.readouterr().err.splitlines()
    assert notice.endswith(f"second.sum is now second.amount. Spell it so, with format: {FORMAT}")


def test_a_recipe_of_today_is_taken_at_its_word(toy, monkeypatch):
    monkeypatch.setattr("posttrain.pipeline.stage_section.migrate", lambda *_, **__: 1 / 0)
    toy.recipe(f"format: {FORMAT}\nsecond: {{amount: 5}}\n")
    assert load_recipe(toy.root).resolve(toy.root).stages["second"].config.amount == 5


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (FORMAT + 1, f"it is of format {FORMAT + 1}, and this posttrain reads formats up to"),
        ("two", "format: must be a whole number such as 3, got 'two'"),
        (0, "format: must be a whole number"),
        ("true", "format: must be a whole number"),
    ],
)
def test_other_formats_are_refused(toy, given, sentence):
    toy.recipe(f"format: {given}\n")
    with pytest.raises(UserError) as caught:
        load_recipe(toy.root)
    assert sentence in str(caught.value)


def test_the_shipped_recipes_are_of_today():
    recipes = [ROOT / "recipe.yaml", *ROOT.glob("recipes/*/recipe.yaml")]
    recipes += ROOT.glob("posttrain/operations/project/template/recipe.yaml.tmpl")
    assert len(recipes) >= 3
    for recipe in recipes:
        values = YAML(typ="safe").load(recipe.read_text())
        assert values["format"] == FORMAT, recipe
        assert migrate(values, TASKS, left_out={}).changes == (), recipe


def test_an_algorithm_of_0_1_is_the_same_algorithm():
    """Every section of then, with all that has another place today."""
    old = {
        "advantage": {"estimator": "group", "scale": "sample", "turns": None},
        "ratio": {"surrogate": "clip", "low": 0.1, "high": 0.3},
        "correction": {
            "old": "recomputed",
            "weights": {"bound": "truncate", "high": 2.0},
            "band": None,
            "max_drift": 0.5,
        },
        "kl": {"coefficient": 0.04, "estimator": "k3"},
        "entropy": None,
    }
    migrated = migrate({"rl": {"algorithm": old}}, TASKS).values["rl"]
    algorithm = RlStageConfig.parse(migrated, where="rl").algorithm
    assert algorithm.describe() == (
        "mean/sample · clip token -0.1 +0.3 · token_mean · old recomputed · truncate token weights"
        " · drift 0.5 · k3 0.04 in loss"
    )


@pytest.mark.parametrize("spelled", ["rpo", {"preset": "rpo", "beta": 0.2}])
def test_rpo_was_the_iterative_one(spelled):
    migrated = migrate({"preference": {"algorithm": spelled}}, {"preference": PREFERENCE})
    algorithm = PREFERENCE.config.parse(migrated.values["preference"], where="p").algorithm
    assert (algorithm.sft_coefficient, algorithm.sft_per_token) == (1.0, True)
    today = PREFERENCE.config.parse({"algorithm": "rpo"}, where="p").algorithm
    assert (today.sft_coefficient, today.sft_per_token) == (0.00025, False)


def test_what_a_recipe_left_to_the_defaults_of_its_format_stays_as_it_was():
    """Problems were drawn by solve rates, and groups without signal were left out."""
    migrated = migrate({"rl": {"steps": 3}}, TASKS)
    draw = RlStageConfig.parse(migrated.values["rl"], where="rl").draw
    assert (draw.sampler.kind, draw.train_on) == ("solve_rate", "signal")
    assert (RlStageConfig().draw.sampler.kind, RlStageConfig().draw.train_on) == ("uniform", "all")
    stated = {"rl": {"draw": {"sampler": {"kind": "uniform"}, "train_on": "all"}}}
    assert migrate(stated, TASKS).values == stated


class OwnEngine(StageConfig):
    """A field inside another one."""

    name: str = "own"


class PlainConfig(StageConfig):
    """No field that a task of 0.1 had."""


PLAIN = Task("plain", PlainConfig, {}, {})


class OwnConfig(StageConfig):
    """Fields of a project's own task, one of which had that name in tasks of 0.1, too."""

    learning_rate: float = 1.0
    optimization: OptimizationConfig = OptimizationConfig()
    engine: OwnEngine | None = None


def test_an_own_task_keeps_the_names_that_its_config_has():
    own = Task("mine", OwnConfig, {}, {})
    section = {"learning_rate": 2.0, "engine": {"name": "own"}, "weight_decay": 0.5, "schedule": 1}
    migrated = migrate({"balance": section}, {"balance": own})
    assert migrated.values["balance"] == {
        "learning_rate": 2.0,
        "engine": {"name": "own"},
        "optimization": {"weight_decay": 0.5, "lr_schedule": 1},
    }
    plain = migrate({"balance": {"learning_rat": 2, "weight_decay": 1}}, {"balance": PLAIN})
    assert plain.changes == ()


def test_a_section_is_rewritten_by_its_task_whatever_its_name():
    sections = {
        "rl2": {"algorithm": {"correction": {"old": "recomputed"}}, "draw": {"sampler": "uniform"}},
        "tidy": {"prompt_chars": [1, 2]},
        "curate": {"prompt_chars": [1, 2]},
    }
    migrated = migrate(sections, {"rl2": RL, "tidy": CURATE, "curate": PLAIN})
    assert migrated.values == {
        "rl2": {
            "algorithm": {"old_policy": "recomputed"},
            "draw": {"sampler": "uniform", "train_on": "signal"},
        },
        "tidy": {"problem_filters": {"prompt_length": {"least": 1, "most": 2}}},
        "curate": {"prompt_chars": [1, 2]},
    }
    assert migrated.changes == (
        "rl2.draw.train_on, left out, is signal",
        "rl2.algorithm.correction is now rl2.algorithm.old_policy and rl2.algorithm.token_weights",
        "tidy.prompt_chars is now tidy.problem_filters.prompt_length",
    )


def test_the_release_section_of_0_1_spells_licenses_as_today():
    old = {"licence": "MIT", "licences": {"a": "CC0-1.0"}, "gates": [{"kind": "licence"}]}
    migrated = migrate_release(old)
    new = {"license": "MIT", "licenses": {"a": "CC0-1.0"}, "gates": [{"kind": "license"}]}
    assert migrated.values == {"release": new}
    assert migrated.changes == (
        "release.licences is now release.licenses",
        "release.licence is now release.license",
        "release.gates.0.kind: licence is now license",
    )
    assert old["gates"] == [{"kind": "licence"}]
    assert migrate_release(new).changes == ()


def test_a_recipe_of_an_unreleased_version_may_spell_licenses_as_of_old(toy):
    toy.recipe(f"format: {FORMAT}\nrelease: {{licence: MIT, gates: {{1: {{kind: licence}}}}}}\n")
    recipe = load_recipe(toy.root)
    assert recipe.release == {"license": "MIT", "gates": {1: {"kind": "license"}}}


def test_keys_that_are_no_text_stay_as_they_are():
    old = {1: {"optimisation": {"steps": 2}}, "rl": {"sources": {2: {"name": "x"}, "2": {}}}}
    migrated = migrate(old, {}, renames=RENAMES, rewrites={})
    assert migrated.values == {
        1: {"optimization": {"steps": 2}},
        "rl": {"sources": {2: {"label": "x"}, "2": {}}},
    }
    assert migrated.changes == (
        "1.optimisation is now 1.optimization",
        "rl.sources.2.name is now rl.sources.2.label",
    )


@pytest.mark.parametrize(
    "algorithm", [{"old_policy": "sampler"}, {"correction": {"old": "sampler"}}]
)
def test_names_with_two_meanings_are_those_of_today(algorithm):
    old = {"rl": {"algorithm": algorithm, "optimization": {"schedule": "cosine"}}}
    assert migrate(old, {"rl": RL}).values["rl"] == {
        "draw": {"sampler": "solve_rate", "train_on": "signal"},
        "algorithm": {"old_policy": "engine"},
        "optimization": {"lr_schedule": "cosine"},
    }
