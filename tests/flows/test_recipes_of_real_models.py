"""Recipes for models of their real size: each resolved as it ships, and whole on a tiny one.

What differs from a recipe that ships is its places, its sizes and the device; kinds of data,
learner, loss and optimizer stay.
"""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
import torch
from ruamel.yaml import YAML

from posttrain.learning.models.load import load_policy
from posttrain.pipeline.profile_notes import notes_on_profile, set_by_profile
from posttrain.pipeline.recipe import load_recipe
from tests.conftest import made_toy
from tests.tiny_qwen import CHAT, save_tiny_qwen

ROOT = Path(__file__).parents[2]
TRAINS = {
    "sft-qwen": "sft",
    "sft-lora-qwen": "sft",
    "dpo-qwen": "preference",
    "reward-qwen": "reward",
    "gsm8k-qwen": "rl",
    "distill-qwen": "rl",
}
"""Recipe -> the stage that it is there for."""

SMALL = {"max_length": 128, "batch_tokens": 512, "micro_batch_tokens": 128, "checkpoint_every": 4}


def asked(n):
    return {"role": "user", "content": f"What is {n} and 1?"}


def said(text):
    return {"role": "assistant", "content": text}


def chats(numbers):
    """Conversations of two turns, as UltraChat has them: a prompt, an id and messages."""
    for n in numbers:
        messages = [asked(n), said(f"It is {n + 1}."), asked(n + 1), said(f"It is {n + 2}.")]
        yield {"prompt": asked(n)["content"], "prompt_id": str(n), "messages": messages}


def pairs(numbers):
    """Pairs as UltraFeedback has them binarized: both sides with the question, and their scores."""
    for n in numbers:
        sides = {"chosen": f"It is {n + 1}.", "rejected": "Who knows?"}
        told = {name: [asked(n), said(text)] for name, text in sides.items()}
        yield {
            **told,
            "prompt": asked(n)["content"],
            "prompt_id": str(n),
            "messages": told["chosen"],
            "score_chosen": 8.0,
            "score_rejected": 3.0,
        }


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """One project for all of them, with the files at the places that the recipes name."""
    with made_toy(tmp_path_factory.mktemp("real")) as toy:
        for package in ("posttrain", "tasks", "flows"):
            shutil.copytree(ROOT / package, toy.root / package)
        for name, kind, rows in (
            ("ultrachat_200k", "sft", chats),
            ("ultrafeedback_binarized", "prefs", pairs),
        ):
            for side, numbers in (("train", range(24)), ("test", range(40, 48))):
                lines = "".join(json.dumps(row) + "\n" for row in rows(numbers))
                toy.write(f"{name}/data/{side}_{kind}-00000-of-00001.jsonl", lines)
        texts = [m["content"] for row in chats(range(48)) for m in row["messages"]]
        for name, seed in (("model", 0), ("teacher", 1)):
            save_tiny_qwen(toy.root / name, [*texts, "Who knows?"], seed=seed)
        for side, numbers in (("train", range(24)), ("test", range(40, 48))):
            asks = ({"question": asked(n)["content"], "answer": f"#### {n + 1}"} for n in numbers)
            toy.write(f"{side}.jsonl", "".join(json.dumps(row) + "\n" for row in asks))
        yield toy


def in_small(name):
    """A recipe that ships, with other places and sizes."""
    recipe = YAML(typ="safe").load((ROOT / "recipes" / name / "recipe.yaml").read_text())
    recipe["run"] = {"threads": 1, "level": "L3"}
    recipe["import_model"] = {"path": "../../model"}
    section = recipe[TRAINS[name]]
    section |= {**SMALL, "epochs": 2}
    section["optimization"] |= {"learning_rate": 1e-3, "warmup_steps": 2}
    return json.dumps(recipe)


@pytest.mark.parametrize("name", TRAINS)
def test_it_resolves_as_it_is_shipped(name, capsys):
    """Without a network, without a notice, and with values that are usual at this size."""
    recipe = load_recipe(ROOT / "recipes" / name)
    dag = recipe.resolve(ROOT)
    assert capsys.readouterr().err == ""
    assert TRAINS[name] in dag.order()
    config = dag.stages[TRAINS[name]].config
    assert config.learner.precision == "bf16"
    assert config.learner.activation_checkpointing
    assert len(notes := [*notes_on_profile(recipe, dag)]) == 1
    assert notes[0].startswith("profile real: the recipe says so; import_model names Qwen/Qwen2.5-")
    assert notes[0].endswith("; the recipe states all that it would set")
    # An expert reads every value in the recipe itself.
    assert [*set_by_profile(recipe, dag)] == []
    revision = recipe.sections["import_model"]["revision"]
    assert len(revision) == 40
    assert set(revision) <= set("0123456789abcdef")


@pytest.mark.parametrize("name", TRAINS)
def test_every_value_of_what_trains_has_its_source_beside_it(name):
    text = (ROOT / "recipes" / name / "recipe.yaml").read_text()
    section = text.partition(f"\n{TRAINS[name]}:\n")[2].partition("\nevaluate:")[0]
    given = [line for line in section.splitlines() if not line.strip().startswith("#")]
    stated = [line for line in given if line.partition(": ")[2].strip()]
    assert len(stated) > 8
    unsourced = [line.strip() for line in stated if " # " not in line]
    # These have theirs in the line above.
    allowed = ("draw:", "engine:", "algorithm:", "reward:", "inputs:")
    assert [line for line in unsourced if not line.startswith(allowed)] == []


# Each trains a tiny model in a process of its own.
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, stage in TRAINS.items() if stage != "rl"])
def test_it_runs_whole_on_a_tiny_model(project, name):
    folder = project.write(f"recipes/{name}/recipe.yaml", in_small(name)).parent
    done = project.cli("run", f"recipes/{name}", "--local", env={"POSTTRAIN_TRACKING": "off"})
    assert done.returncode == 0, done.stdout + done.stderr
    stage = TRAINS[name]
    curve = pl.read_parquet(folder / "data" / stage / "curve.parquet")
    losses = curve.filter(pl.col("metric") == f"{stage}/loss").sort("step")["value"]
    assert losses[-1] < losses[0]
    made = "reward_model" if stage == "reward" else "policy"
    saved = folder / "data" / stage / made
    assert saved.is_dir()
    if made == "policy":
        assert load_policy(saved).tokenizer.chat_template == CHAT


def first_token(folder):
    """Log-probabilities of the first token of answers to all questions, by a policy."""
    policy = load_policy(folder)
    asks = [[asked(n)] for n in range(24)]
    ids = policy.tokenizer.apply_chat_template(asks, add_generation_prompt=True)["input_ids"]
    with torch.no_grad():
        logits = [policy.model(torch.tensor([each])).logits[0, -1] for each in ids]
    return torch.stack(logits).log_softmax(-1)


def divergence(one, other):
    """KL(one || other) in nats, the mean over the questions."""
    return float((one.exp() * (one - other)).sum(-1).mean())


@pytest.mark.slow
def test_distillation_runs_whole_on_tiny_models(project):
    """That of GSM8K is in tests/test_gsm8k_qwen.py, as it needs the file."""
    recipe = YAML(typ="safe").load((ROOT / "recipes/distill-qwen/recipe.yaml").read_text())
    recipe["run"] = {"threads": 1, "level": "L3"}
    for source, side in zip(recipe["synthesize"]["sources"], ("train", "test"), strict=True):
        for key in ("hub", "subset", "split", "revision"):
            del source[key]
        source |= {"kind": "jsonl", "path": f"../../{side}.jsonl"}
    for section, place in (("import_model", "model"), ("teacher", "teacher")):
        del recipe[section]["name"], recipe[section]["revision"]
        recipe[section]["path"] = f"../../{place}"
    sampled = {"max_tokens": 8, "engine": "torch"}
    recipe["rl"] |= {"steps": 12, "problems_per_step": 8, "checkpoint_every": 4, **sampled}
    recipe["rl"]["optimization"] |= {"learning_rate": 3e-3}
    recipe["evaluate"] |= {"num_samples": 2, "pass_at": [1], **sampled}
    folder = project.write("recipes/distill-qwen/recipe.yaml", json.dumps(recipe)).parent
    done = project.cli("run", "recipes/distill-qwen", "--local", env={"POSTTRAIN_TRACKING": "off"})
    assert done.returncode == 0, done.stdout + done.stderr
    teacher = first_token(folder / "data/teacher/policy")
    before = first_token(folder / "data/import_model/policy")
    after = first_token(folder / "data/rl/policy")
    assert divergence(after, teacher) < 0.9 * divergence(before, teacher)
    evaluated = json.loads((folder / "data/evaluate/report.json").read_text())
    assert [each["name"] for each in evaluated["policies"]] == ["teacher", "base", "rl"]
