"""`posttrain plan --memory`: the table, JSON, and what is refused."""

import json
import re

import pytest

from posttrain.stage.formatting import bytesize

FLOW = """
from tasks.evaluate import TASK as EVALUATE
from tasks.import_model import TASK as IMPORT
from tasks.sft import TASK as SFT
from tasks.synthesize import TASK as SYNTHESIZE
def declare(build):
    raw = build.stage("synthesize", SYNTHESIZE)
    base = build.stage("base", IMPORT)
    sft = build.stage("sft", SFT, policy=base["policy"], traces=raw["traces"])
    build.stage("evaluate", EVALUATE, problems=raw["heldout"], policies={"sft": sft["policy"]})
"""
RECIPE = """
synthesize:
  heldout_fraction: 0.5
  sources: [{kind: jsonl, name: own, path: own.jsonl, verifier: exact}]
base: {path: model}
sft: {max_length: 512, batch_tokens: 16384}
"""
AT_THE_HUB = "base: {name: own/model, revision: 0123456789abcdef0123456789abcdef01234567}"
CONFIG = {
    "model_type": "qwen2",
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "tie_word_embeddings": True,
    "max_position_embeddings": 2048,
}


@pytest.fixture
def folder(toy, real_tasks):
    """A project that tunes a model of which there is a config.json alone."""
    (toy.root / "own.jsonl").write_text('{"prompt": "1 + 1 =", "answer": "2", "solution": "2"}\n')
    model = toy.root / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    real_tasks(FLOW, RECIPE)
    return model


@pytest.mark.parametrize(("budget", "noted"), [("1MB", True), ("1GB", False)])
def test_a_budget_that_holds_no_checkpoint_is_noted(folder, posttrain, budget, noted):
    """4,192,512 parameters take 12 bytes each with AdamW: 50.3 MB."""
    options = [f"sft.learner.checkpoints.budget={budget}", "sft.optimization.optimizer=adamw"]
    shown = posttrain("plan", "--memory", *(part for each in options for part in ("--set", each)))
    note = "note: sft.learner.checkpoints.budget is 1 MB, less than one checkpoint of 50.3 MB"
    assert (note in " ".join(shown.out.split())) == noted


def test_a_table_says_what_takes_how_much_and_json_the_same(folder, posttrain):
    shown = posttrain("plan", "--memory", "--gpu", "80GB")
    lines = [" ".join(line.split()) for line in shown.out.splitlines()]
    assert lines[0] == "What each stage takes at its peak, against a GPU of 80 GB:"
    assert "sft evaluate" in lines
    told = json.loads(posttrain("plan", "--memory", "--gpu", "80GB", "--json").out)
    assert [each["stage"] for each in told["stages"]] == ["sft", "evaluate"]
    sft, evaluate = told["stages"]
    # 4 layers of 2 x 256 x (256 + 128) + 128 x 2 x 256 in all, MLPs of 3 x 256 x 1024.
    parameters = 4 * (2 * 256 * 256 + 2 * 256 * 128 + 512 + 3 * 256 * 1024 + 512) + 256 + 256_000
    assert sft["parts"]["weights"] == evaluate["parts"]["weights"] == 4 * parameters
    assert sft["parts"]["states"] == 8 * parameters
    assert sft["peak"] == sum(sft["parts"].values())
    assert sft["checkpoint"] == {
        "one": 12 * parameters,
        "kept": 24 * parameters,
        "result": 4 * parameters,
    }
    assert evaluate["checkpoint"] is None
    assert f"peak {bytesize(sft['peak'])} {bytesize(evaluate['peak'])}" in lines
    assert not (folder.parent / ".posttrain" / "staging").exists()


def test_what_cannot_fit_is_refused_behind_the_table(folder, posttrain):
    refused = posttrain("plan", "--memory", "--gpu", "500MB")
    assert refused.code == 2
    assert "does not fit" in refused.out
    assert "sft does not fit: at its peak" in refused.err
    first, second = refused.err.splitlines()
    assert first.count("(saves ") == 3
    assert second.startswith("error: evaluate does not fit: at its peak (sampling) it takes ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--gpu", "80GB"), "add --memory, or leave them out"),
        (("--memory", "--gpus", "2"), "say which with --gpu"),
        (("--memory", "--gpu", "lots"), "write it as 50GB"),
        (("--memory", "--set", "run.device=cuda"), "name one, as in --gpu 80GB"),
    ],
)
def test_a_question_that_has_no_answer(folder, posttrain, words, sentence):
    assert sentence in posttrain("plan", *words).err


def test_a_model_at_the_hub_needs_its_config_alone(folder, posttrain, toy, real_tasks):
    real_tasks(FLOW, RECIPE.replace("base: {path: model}", AT_THE_HUB))
    words = ("plan", "--memory", "--gpu", "80GB")
    (asked,) = re.findall(r"--model-config (\w+)=DIR", posttrain(*words).err)
    for given in (str(folder), f"{asked}={folder}"):
        assert "sft" in posttrain(*words, "--model-config", given).out
    assert "there is no stage other" in posttrain(*words, "--model-config", "other=here").err
