"""The recipe for one GPU, whole and in small: a tiny random Qwen2, real word problems, the CPU.

What differs from recipes/gsm8k-qwen is sizes, places and the device. The pool is a dozen problems
with short solutions, which fine-tuning learns half by heart, so that there is something to improve.
"""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from posttrain.data.schemas import ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy
from posttrain.pipeline.recipe import load_recipe
from tests.tiny_qwen import CHAT, save_tiny_qwen

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "recipes/gsm8k-qwen/recipe.yaml"
GSM8K = ROOT.parent / "shared/data/gsm8k"
ENGINE = "vllm" if importlib.util.find_spec("vllm") else "torch"


def shortest(split, count):
    rows = [json.loads(line) for line in (GSM8K / f"{split}.jsonl").read_text().splitlines()]
    return sorted(rows, key=lambda row: len(row["question"] + row["answer"]))[:count]


def in_small(recipe):
    """The recipe's own sections with other sizes."""
    recipe["run"] = {"threads": 1, "level": "L3"}
    for source, split in zip(recipe["synthesize"]["sources"], ("train", "test"), strict=True):
        for key in ("hub", "subset", "split", "revision"):
            del source[key]
        source |= {"kind": "jsonl", "path": f"{split}.jsonl"}
    recipe["import_model"] = {"path": "model"}
    sizes = {
        "sft": {"steps": 150, "batch_tokens": 2048, "optimization": {"learning_rate": 3e-3}},
        "probe": {"num_problems": 12, "num_samples": 8, "max_tokens": 80, "engine": ENGINE},
        "reward": {"steps": 2, "batch_tokens": 2048},
        "rl": {
            "steps": 3, "problems_per_step": 6, "max_tokens": 80,
            "optimization": {"learning_rate": 1e-4},
            "checkpoint_every": 2, "engine": ENGINE,
        },
        "evaluate": {"num_samples": 2, "pass_at": [1, 2], "max_tokens": 80, "engine": ENGINE},
    }  # fmt: skip
    for section, values in sizes.items():
        recipe[section] |= values
    del recipe["sft"]["epochs"]
    for section in ("sft", "reward"):
        del recipe[section]["micro_batch_tokens"]
    return recipe


@pytest.fixture
def project(toy):
    """The recipe in a project of its own, with the model that it asks for."""
    for package in ("posttrain", "tasks", "flows"):
        shutil.copytree(ROOT / package, toy.root / package)
    rows = {"train": shortest("train", 12), "test": shortest("test", 4)}
    for split, chosen in rows.items():
        toy.write(f"{split}.jsonl", "\n".join(map(json.dumps, chosen)))
    texts = [text for row in rows["train"] for text in row.values()]
    save_tiny_qwen(toy.root / "model", texts * 3)
    yaml = YAML()
    with (toy.root / "recipe.yaml").open("w") as file:
        yaml.dump(in_small(yaml.load(RECIPE.read_text())), file)
    return toy


@pytest.mark.skipif(not GSM8K.exists(), reason="the GSM8K files are not beside the checkout")
@(pytest.mark.engines if ENGINE == "vllm" else pytest.mark.slow)
def test_the_whole_recipe_runs_in_small(project):
    done = project.cli("run", "--local")
    assert done.returncode == 0, done.stdout + done.stderr
    rollouts = read_table(project.root / "data/rl/rollouts.parquet", ROLLOUTS)
    assert rollouts["versions"].explode().unique().sort().to_list() == [0, 1, 2]
    policy = load_policy(project.root / "data/rl/policy")
    assert policy.tokenizer.chat_template == CHAT
    prompt = policy.tokenizer.decode(
        rollouts["token_ids"][0].to_list()[: rollouts["spans"][0][0]["end"]]
    )
    assert prompt.startswith("<|im_start|>user\n")
    assert prompt.endswith("<|im_end|>\n<|im_start|>assistant\n")
    report = json.loads((project.root / "data/evaluate/report.json").read_text())
    assert [each["name"] for each in report["policies"]] == ["base", "sft", "rl"]


def test_its_plan_needs_no_network_and_every_pin_is_a_commit():
    recipe = load_recipe(RECIPE)
    assert recipe.resolve(ROOT).order()
    pins = [recipe.sections["import_model"]["revision"]]
    pins += [source["revision"] for source in recipe.sections["synthesize"]["sources"]]
    assert all(len(pin) == 40 and set(pin) <= set("0123456789abcdef") for pin in pins)
