"""The shipped recipes, each resolved as it is, and run to its end on a tiny model."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from ruamel.yaml import YAML

from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import load_policy, save_policy
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.pipeline.recipe import load_recipe
from tests.conftest import made_toy

ROOT = Path(__file__).parents[2]
CHAINS = {
    "sft-dpo-rl": ["base", "sft", "preference", "rl"],
    "iterative-dpo": ["base", "sft", "preference_1", "preference_2", "preference_3"],
    "rl-from-base": ["base", "rl"],
    "mid-training": ["imported", "base", "sft", "rl"],
    "expert-iteration": ["base", "sft", "sft_1", "sft_2", "sft_3"],
    "own-evaluation": ["base"],
    "distill-qwen": ["teacher", "base", "rl"],
}
"""Recipe -> the policies that its evaluation compares, in order."""
RUN_BY_THEMSELVES = {"own-evaluation", "distill-qwen"}
"""Those whose models and data have tests of their own."""

SOURCES = [
    {
        "kind": "jsonl",
        "name": name,
        "path": f"../../{name}.jsonl",
        "columns": {"prompt": "question", "answer": "answer", "solution": "answer"},
    }
    for name in ("up", "down")
]
TRAINING = {"batch_tokens": 1024}
# What every recipe's sections are changed to, so that a tiny model goes through all of it.
SMALL = {
    "run": {"threads": 1, "retries": 0},
    "synthesize": {"sources": SOURCES},
    "curate": {"problem_filters": {"near_duplicates": None, "contamination": {"ngram": None}}},
    "pretrain": {"steps": 140, "hidden": 32, "layers": 1, "vocab_size": 280, **TRAINING},
    "sft": {"steps": 2, **TRAINING, "optimization": {"learning_rate": 1e-4}},
    "probe": {"num_problems": 100, "num_samples": 4, "max_tokens": 16},
    "reward": {"steps": 4, **TRAINING},
    "preference": {"steps": 6, "sampling": {"max_tokens": 16}, **TRAINING},
    "rl": {"steps": 2, "problems_per_step": 8, "max_tokens": 16},
    "evaluate": {"num_samples": 2, "pass_at": [1], "max_tokens": 16},
}


def coins(side, answer):
    """300 problems of one kind, a line each."""
    lines = ({"question": f"{side} {n} =", "answer": f"{side}\n#### {answer}"} for n in range(300))
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """One project for all of them: what two recipes have alike is made once."""
    with made_toy(tmp_path_factory.mktemp("shipped")) as toy:
        for package in ("posttrain", "tasks", "flows"):
            shutil.copytree(ROOT / package, toy.root / package)
        for side, answer in (("up", "1"), ("down", "2")):
            toy.write(f"{side}.jsonl", coins(side, answer))
        texts = [f"up {n} = down\n#### 1 #### 2" for n in range(300)]
        tokenizer = train_tokenizer(texts, vocab_size=280)
        model = build_llama(tokenizer, hidden=32, layers=1, heads=2, seed=0, max_length=128)
        save_policy(model, tokenizer, toy.root / "tiny")
        yield toy


def shrunk(name):
    """A shipped recipe with `SMALL` laid over it, as YAML."""
    shipped = ROOT / "recipes" / name
    recipe = YAML(typ="safe").load((shipped / "recipe.yaml").read_text())
    stages = load_recipe(shipped).resolve(ROOT).stages
    for section, values in SMALL.items():
        if not {section, f"{section}_1"} & {"run", *stages}:
            continue
        entries = recipe.get(section, {})
        for entry in entries if isinstance(entries, list) else [entries]:
            entry.update(values)
            if isinstance(entries, dict):
                recipe[section] = entry
    if "series" in recipe:
        recipe["series"]["run"].update(SMALL["rl"])
    if "import_model" in recipe:
        recipe["import_model"] = {"path": "../../tiny"}
        recipe["pretrain"]["mixture"] = {"up": 3, "down": 1}
        # The tiny model has learned nothing yet, so it needs the rates of pretraining.
        del recipe["pretrain"]["optimization"]
    return json.dumps(recipe)


@pytest.mark.parametrize("name", CHAINS)
def test_it_resolves_as_it_is_shipped(name, capsys):
    recipe = load_recipe(ROOT / "recipes" / name)
    evaluate = recipe.resolve(ROOT).stages["evaluate"]
    compared = [port.removeprefix("policies.") for port in evaluate.inputs if "policies." in port]
    assert compared == CHAINS[name]
    assert capsys.readouterr().err == ""


# Each is a whole pipeline: three to eleven stages that train or sample.
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CHAINS if name not in RUN_BY_THEMSELVES])
def test_it_runs_to_its_end_on_a_tiny_model(project, name):
    folder = project.write(f"recipes/{name}/recipe.yaml", shrunk(name)).parent
    done = project.cli("run", f"recipes/{name}", "--local", env={"POSTTRAIN_TRACKING": "off"})
    assert done.returncode == 0, done.stderr
    evaluated = json.loads((folder / "data/evaluate/report.json").read_text())
    assert [policy["name"] for policy in evaluated["policies"]] == CHAINS[name]
    # Each was changed by its stage: no two of them are one.
    completions = pl.read_parquet(folder / "data/evaluate/completions.parquet")
    assert completions["generator"].n_unique() == len(CHAINS[name])


@pytest.mark.slow
def test_an_evaluation_alone_asks_every_row_of_the_file_once(project):
    shipped = ROOT / "recipes/own-evaluation"
    recipe = YAML(typ="safe").load((shipped / "recipe.yaml").read_text())
    recipe |= {"import_model": {"path": "../../tiny"}, "run": {"threads": 1}}
    recipe["evaluate"]["max_tokens"] = 16
    rows = [json.loads(line) for line in (shipped / "problems.jsonl").read_text().splitlines()]
    # What the tiny model can write at all: the rows that ship are of letters that it never saw.
    rows = [{"prompt": f"up {n} =", "answer": f"#### {n % 2}"} for n, _ in enumerate(rows)]
    folder = project.write("recipes/own-evaluation/recipe.yaml", json.dumps(recipe)).parent
    project.write("recipes/own-evaluation/problems.jsonl", "\n".join(map(json.dumps, rows)) + "\n")
    done = project.cli(
        "run", "recipes/own-evaluation", "--local", env={"POSTTRAIN_TRACKING": "off"}
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "data/evaluate/report.json").read_text())
    assert (report["num_problems"], report["num_samples"], report["temperature"]) == (4, 1, 0.0)
    completions = pl.read_parquet(folder / "data/evaluate/completions.parquet")
    assert sorted(completions["prompt"]) == sorted(row["prompt"] for row in rows)


# Six stages, and a plan again.
@pytest.mark.slow
def test_a_student_is_distilled_and_its_lineage_and_its_key_know_the_teacher(project):
    shipped = ROOT / "recipes/distill-qwen/recipe.yaml"
    recipe = YAML(typ="safe").load(shipped.read_text())
    recipe |= {name: SMALL[name] for name in ("run", "synthesize", "curate", "evaluate")}
    recipe["import_model"] = {"path": "../../tiny"}
    recipe["teacher"] = {"path": "../../taught"}
    recipe["rl"] |= {"steps": 2, "problems_per_step": 8, "max_tokens": 16, "engine": "torch"}
    recipe["rl"]["learner"] = {"lora": {"rank": 2}}
    # Beyond what ships: the rows that it is taught before, which the flow has a place for.
    recipe["teach"] = {"top_k": 16}
    recipe["sft"] = {**SMALL["sft"], "loss": "soft_targets"}
    teacher = load_policy(project.root / "tiny")
    for seed in (1, 2):
        model = build_llama(
            teacher.tokenizer, hidden=48, layers=1, heads=2, seed=seed, max_length=128
        )
        save_policy(model, teacher.tokenizer, project.root / "taught")
        project.write("recipes/opd/recipe.yaml", json.dumps(recipe))
        plan = project.cli("plan", "recipes/opd").stdout
        if seed == 2:
            # With another teacher all that listens to it may run again, and nothing else.
            stages = dict(line.split()[:2] for line in plan.splitlines() if len(line.split()) > 1)
            assert stages["teacher"] == "run"
            assert {name for name, what in stages.items() if what == "maybe"} == {
                *("teach", "sft", "rl", "evaluate"),
            }
        else:
            done = project.cli("run", "recipes/opd", "--local", env={"POSTTRAIN_TRACKING": "off"})
            assert done.returncode == 0, done.stderr
    folder = project.root / "recipes/opd"
    evaluated = json.loads((folder / "data/evaluate/report.json").read_text())
    assert [each["name"] for each in evaluated["policies"]] == ["teacher", "base", "sft", "rl"]
    completions = pl.read_parquet(folder / "data/evaluate/completions.parquet")
    assert completions["generator"].n_unique() == 4
    for made in ("rl/policy", "sft/policy", "teach/targets.parquet"):
        above = project.cli("lineage", "up", f"recipes/opd/data/{made}").stdout
        assert "recipes/opd/data/teacher/policy" in above


OWN_PAIRS = """
flow: flows.own_pairs
format: 3
run: {threads: 1}
import_model: {path: ../../tiny}
import_pairs: {path: ../../pairs.jsonl}
reward: {parameterization: head, scale: 1.0, steps: 20, optimization: {learning_rate: 3e-3}}
preference: {algorithm: dpo, steps: 4}
"""


@pytest.mark.slow
def test_ones_own_pairs_make_a_reward_model_that_ranks_them_and_a_policy(project):
    lines = [{"prompt": f"up {n} =", "chosen": "#### 1", "rejected": "#### 2"} for n in range(120)]
    project.write("pairs.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    folder = project.write("recipes/own-pairs/recipe.yaml", OWN_PAIRS).parent
    done = project.cli("run", "recipes/own-pairs", "--local", env={"POSTTRAIN_TRACKING": "off"})
    assert done.returncode == 0, done.stderr
    made = {path.name for path in (folder / "data").iterdir()}
    assert {"import_model", "import_pairs", "reward", "preference"} <= made
    curve = pl.read_parquet(next((folder / "data/reward").rglob("curve.parquet")))
    accuracy = curve.filter(pl.col("metric").str.ends_with("accuracy")).sort("step")["value"]
    assert accuracy[-1] > 0.9
