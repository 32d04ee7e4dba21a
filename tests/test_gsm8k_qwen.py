"""The recipe for one GPU, whole and in small: a tiny random Qwen2, real word problems, the CPU.

What differs from recipes/gsm8k-qwen is sizes, places and the device. The pool is a dozen problems
with short solutions, which the model is taught half by heart before, as its real one can reason: so
that there is something to improve.
"""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from posttrain.data.contexts import PromptContext
from posttrain.data.schemas import COMPLETIONS, ROLLOUTS, Completion, Problem, completions_table
from posttrain.data.tables import read_table, write_table
from posttrain.learning.models.load import load_policy
from posttrain.learning.rewards.score import final_answer
from posttrain.pipeline.recipe import load_recipe
from posttrain.stage.context import StageContext
from tasks.sft.config import SftConfig
from tasks.sft.stage import run as fine_tune
from tests.tiny_qwen import CHAT, save_tiny_qwen

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "recipes/gsm8k-qwen/recipe.yaml"
GSM8K = ROOT.parent / "shared/data/gsm8k"
TURN = "<|im_start|>assistant\n"
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
        "probe": {"num_samples": 8, "max_tokens": 80, "engine": ENGINE},
        "rl": {
            "steps": 3, "problems_per_step": 6, "max_tokens": 80,
            "optimization": {"learning_rate": 1e-4},
            "checkpoint_every": 2, "engine": ENGINE,
        },
        "evaluate": {"num_samples": 2, "pass_at": [1, 2], "max_tokens": 80, "engine": ENGINE},
    }  # fmt: skip
    for section, values in sizes.items():
        recipe[section] |= values
    return recipe


def teach(folder, rows, context, scratch):
    """Fine-tune the model on its dozen problems, as the recipe asks them."""
    asked = PromptContext(**context).written()
    solved = [
        Completion(
            Problem("gsm8k", row["question"], final_answer(row["answer"]), 1, "numeric",
                    context=asked),
            row["answer"], "file:gsm8k", 1.0, True, "correct",
        )
        for row in rows
    ]  # fmt: skip
    write_table(completions_table(solved), scratch / "traces.parquet", COMPLETIONS)
    config = SftConfig(steps=150, batch_tokens=2048, optimization={"learning_rate": 3e-3})
    inputs = {"policy": folder, "traces": scratch / "traces.parquet"}
    outputs = {"policy": scratch / "taught", "curve": scratch / "curve.parquet"}
    fine_tune(config, inputs, outputs, StageContext.quiet(scratch / "scratch"))
    shutil.rmtree(folder)
    shutil.copytree(outputs["policy"], folder)


@pytest.fixture
def project(toy, tmp_path_factory):
    """The recipe in a project of its own, with the model that it asks for."""
    for package in ("posttrain", "tasks", "flows"):
        shutil.copytree(ROOT / package, toy.root / package)
    rows = {"train": shortest("train", 12), "test": shortest("test", 4)}
    for split, chosen in rows.items():
        toy.write(f"{split}.jsonl", "\n".join(map(json.dumps, chosen)))
    texts = [text for row in rows["train"] for text in row.values()]
    yaml = YAML()
    recipe = in_small(yaml.load(RECIPE.read_text()))
    context = dict(recipe["synthesize"]["sources"][0]["context"])
    save_tiny_qwen(toy.root / "model", [*texts * 3, *context.values()])
    teach(toy.root / "model", rows["train"], context, tmp_path_factory.mktemp("taught"))
    with (toy.root / "recipe.yaml").open("w") as file:
        yaml.dump(recipe, file)
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
    # What scores an answer looks for what the prompt asks for.
    assert prompt.endswith("end with #### and the number that is asked for.<|im_end|>\n" + TURN)
    report = json.loads((project.root / "data/evaluate/report.json").read_text())
    assert [each["name"] for each in report["policies"]] == ["base", "rl"]


def test_its_plan_needs_no_network_and_every_pin_is_a_commit():
    recipe = load_recipe(RECIPE)
    assert recipe.resolve(ROOT).order()
    pins = [recipe.sections["import_model"]["revision"]]
    pins += [source["revision"] for source in recipe.sections["synthesize"]["sources"]]
    assert all(len(pin) == 40 and set(pin) <= set("0123456789abcdef") for pin in pins)
