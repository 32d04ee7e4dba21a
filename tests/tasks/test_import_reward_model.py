"""A classifier of anyone's as the reward model: its scores are transformers' own."""

import json

import pytest
import torch
from transformers import LlamaConfig, LlamaForSequenceClassification

from posttrain.data.templates import encode_completions, encode_prompts
from posttrain.learning.models.load import load_tokenizer
from posttrain.learning.models.reward_head import load_reward_model
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.evaluate.config import EvaluateConfig
from tasks.evaluate.report import read_report
from tasks.evaluate.stage import run as evaluate
from tasks.import_reward_model import TASK
from tasks.import_reward_model.stage import run

PROMPTS, TEXTS = ["up 1 =", "down 22 =", "up 3 ="], ["#### 1", "it is\n#### 2", ""]


@pytest.fixture
def classifier(tmp_path):
    """Saves one with its own tokenizer, as the hub has them: no reward.json, no pad token."""

    def save(num_labels=1):
        tokenizer = train_tokenizer(["a grader reads words of its own"] * 3, vocab_size=270)
        tokenizer.pad_token = None
        config = LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
            num_attention_heads=2, num_labels=num_labels, initializer_range=0.5, pad_token_id=None,
        )  # fmt: skip
        torch.manual_seed(0)
        LlamaForSequenceClassification(config).save_pretrained(tmp_path / "grader")
        tokenizer.save_pretrained(tmp_path / "grader")
        return tmp_path / "grader"

    return save


def imported(path, folder):
    outputs = {"reward_model": folder / "reward_model", "report": folder / "report.json"}
    context = StageContext.quiet(folder / "scratch")
    run(TASK.config(path="grader"), {"files.model": path}, outputs, context)
    return outputs


def test_it_scores_as_transformers_does(classifier, tmp_path):
    path = classifier()
    outputs = imported(path, tmp_path)
    plain = LlamaForSequenceClassification.from_pretrained(path)
    tokenizer = load_tokenizer(path)
    rows = zip(
        encode_prompts(tokenizer, PROMPTS),
        encode_completions(tokenizer, TEXTS, allow_empty=True),
        strict=True,
    )
    # One row at a time needs no padding. Without a pad token the end token pads, and as
    # transformers pools before what equals it, the last token that says something counts.
    with torch.no_grad():
        expected = [
            plain(input_ids=torch.tensor([[*prompt, *text[:-1]]])).logits.item()
            for prompt, text in rows
        ]
    scores = load_reward_model(outputs["reward_model"]).score(PROMPTS, TEXTS)
    assert scores == pytest.approx(expected, abs=1e-5)
    assert max(scores) - min(scores) > 0.1
    report = json.loads(outputs["report"].read_text())
    assert report["architecture"] == "LlamaForSequenceClassification"


def test_it_picks_the_best_of_n_though_its_tokenizer_is_another(
    classifier, guesser, coins_path, tmp_path
):
    outputs = {"report": tmp_path / "eval.json", "completions": tmp_path / "completions.parquet"}
    inputs = {
        "problems": coins_path,
        "policies.guesser": guesser,
        "reward_model": imported(classifier(), tmp_path)["reward_model"],
    }
    config = EvaluateConfig(num_samples=2, pass_at=(1, 2), max_tokens=8)
    evaluate(config, inputs, outputs, StageContext.quiet(tmp_path / "scratch"))
    assert read_report(outputs["report"]).policies[0].best_of[-1].k == 2


def test_several_labels_or_a_language_model_are_refused(classifier, guesser, tmp_path):
    with pytest.raises(UserError, match="has one label, and this classifier has 3"):
        imported(classifier(num_labels=3), tmp_path)
    with pytest.raises(UserError, match=r"the weights lack 'score.weight'"):
        imported(guesser, tmp_path)
