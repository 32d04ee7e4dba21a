"""Tasks of lm-evaluation-harness on a tiny policy, over data in a file."""

import json
import math
from types import SimpleNamespace

import polars as pl
import pytest
import torch

from posttrain.learning.models.load import load_policy
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.lm_eval import TASK
from tasks.lm_eval.config import LmEvalConfig
from tasks.lm_eval.model import PolicyLM
from tasks.lm_eval.stage import run
from tests.tiny_qwen import save_tiny_qwen

DOCUMENTS = [
    {"question": f"What is {a} + {b}?", "choices": [str(a + b), str(a + b + 1)], "right": a % 2}
    for a in range(5)
    for b in range(3)
]
COMMON = """
dataset_path: json
dataset_kwargs: {data_files: {test: sums.jsonl}}
test_split: test
"""
CHOICES = f"""
task: sums
{COMMON}
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: right
metric_list: [{{metric: acc}}]
metadata: {{version: 2.0}}
"""
ANSWERS = f"""
task: answers
{COMMON}
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{choices[0]}}}}"
generation_kwargs: {{until: ["never said"], max_gen_toks: 6, do_sample: false}}
metric_list: [{{metric: exact_match}}]
filter_list:
  - name: digits
    filter: [{{function: regex, regex_pattern: "([0-9]+)"}}, {{function: take_first}}]
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("lm_eval") / "tiny"
    texts = [f"{each['question']} {each['choices']}" for each in DOCUMENTS]
    save_tiny_qwen(path, texts * 5, max_length=128, seed=1)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("own")
    (made / "sums.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in DOCUMENTS))
    (made / "sums.yaml").write_text(CHOICES)
    (made / "answers.yaml").write_text(ANSWERS)
    return made


def evaluated(policy, folder, tmp_path, *names, **options):
    tasks = [str(folder / name) for name in names]
    config = LmEvalConfig.parse({"tasks": tasks, **options}, where="lm_eval")
    outputs = {name: tmp_path / f"{name}{port.type.suffix}" for name, port in TASK.outputs.items()}
    context = StageContext.quiet(tmp_path / "scratch", seed=7)
    metrics = run(config, {"policy": policy}, outputs, context)
    report = json.loads(outputs["report"].read_text())
    return metrics, report, *(pl.read_parquet(outputs[n]) for n in ("documents", "samples"))


def likelihoods(policy, document):
    """What the policy finds of each choice, worked out row by row without padding."""
    tokenizer = policy.tokenizer
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": document["question"]}],
        tokenize=False,
        add_generation_prompt=True,
    )
    context = tokenizer(asked, add_special_tokens=False)["input_ids"]
    found = []
    for choice in document["choices"]:
        ids = tokenizer(choice, add_special_tokens=False)["input_ids"]
        with torch.inference_mode():
            logits = policy.model(input_ids=torch.tensor([[*context, *ids]])).logits[0].float()
        logprobs = logits.log_softmax(-1)
        at = range(len(context) - 1, len(context) + len(ids) - 1)
        found.append(sum(logprobs[t, i].item() for t, i in zip(at, ids, strict=True)))
    return found


def test_choices_are_scored_as_the_policy_finds_them_behind_its_own_template(
    tiny, folder, tmp_path
):
    metrics, report, documents, samples = evaluated(tiny, folder, tmp_path, "sums.yaml")
    policy = load_policy(tiny)
    expected = [likelihoods(policy, each) for each in DOCUMENTS]
    right = [
        float(pair.index(max(pair)) == each["right"])
        for pair, each in zip(expected, DOCUMENTS, strict=True)
    ]
    share = sum(right) / len(right)
    assert 0 < share < 1
    assert metrics["lm_eval/sums/acc"] == pytest.approx(share)
    told = json.loads(samples["responses"][0])
    assert [float(each[0][0]) for each in told] == pytest.approx(expected[0], abs=1e-4)
    # The standard error of a mean with n - 1, and Wilson's interval, by hand.
    n, z = len(right), 1.959964
    error = math.sqrt(share * (1 - share) / (n - 1))
    figure = report["tasks"]["sums"]["figures"]["acc"]
    assert figure["stderr"] == pytest.approx(error)
    middle = (sum(right) + z * z / 2) / (n + z * z)
    reach = z / (n + z * z) * math.sqrt(sum(right) * (n - sum(right)) / n + z * z / 4)
    assert (figure["low"], figure["high"]) == pytest.approx((middle - reach, middle + reach))
    assert report["as_messages"]
    assert report["tasks"]["sums"]["version"] == 2.0
    assert (len(documents), len(samples)) == (15, 15)


def test_every_sample_has_its_document_as_parent(tiny, folder, tmp_path):
    _, _, documents, samples = evaluated(tiny, folder, tmp_path, "sums.yaml", "answers.yaml")
    assert documents["id"].is_unique().all()
    assert samples["id"].is_unique().all()
    assert [json.loads(each) for each in documents["document"][:2]] == [
        DOCUMENTS[0], DOCUMENTS[1]
    ]  # fmt: skip
    assert samples["parents"].to_list() == [[each] for each in documents["id"]]


def test_answers_are_the_engines_own_and_are_scored_by_the_tasks_filter(tiny, folder, tmp_path):
    metrics, report, _, samples = evaluated(tiny, folder, tmp_path, "answers.yaml")
    policy = load_policy(tiny)
    engine = TorchRolloutEngine(policy.model, policy.tokenizer)
    ids = policy.tokenizer(samples["prompt"][0], add_special_tokens=False)["input_ids"]
    params = SamplingParams(max_tokens=6, temperature=0.0, stop=("never said",))
    (sample,) = engine.sample([Prompt("0", tuple(ids))], params)
    assert json.loads(samples["responses"][0]) == [[sample.text]]
    assert set(report["tasks"]["answers"]["figures"]) == {"exact_match/digits"}
    assert "lm_eval/answers/exact_match/digits" in metrics


def test_scores_do_not_hang_on_the_batch_size(tiny, folder, tmp_path):
    both = ("sums.yaml", "answers.yaml")
    alone = evaluated(tiny, folder, tmp_path, *both, batch_size=1)
    together = evaluated(tiny, folder, tmp_path, *both, batch_size=7)
    assert alone[0] == together[0]
    for one, other in zip(*(each[3].to_dicts() for each in (alone, together)), strict=True):
        assert one["scores"] == other["scores"]
        if one["task"] == "sums":
            pairs = ([float(c[0][0]) for c in json.loads(row["responses"])] for row in (one, other))
            assert next(pairs) == pytest.approx(next(pairs), abs=1e-4)


def test_a_task_is_told_by_digests_of_what_it_asks(tiny, folder, tmp_path):
    def digests(name="sums.yaml", **options):
        told = evaluated(tiny, folder, tmp_path, name, **options)[1]["tasks"]["sums"]
        return [told[f"{what}_sha256"] for what in ("config", "documents", "prompts")]

    config, documents, prompts = digests()
    assert digests() == [config, documents, prompts]
    (folder / "other.yaml").write_text(CHOICES.replace('"{{question}}"', '"{{question}}!"'))
    other = digests("other.yaml")
    assert other[0] != config
    assert (other[1], other[2] != prompts) == (documents, True)
    fewer = digests(limit=5)
    assert (fewer[0], fewer[1] != documents) == (config, True)
    plain = digests(chat_template=False)
    assert (plain[1], plain[2] != prompts) == (documents, True)


def test_what_is_read_counts_and_only_named_tasks_reach_the_hub():
    own = LmEvalConfig(tasks=("a/own.yaml",), files=("a/data.jsonl",))
    assert own.read_files() == ("a/own.yaml", "a/data.jsonl")
    assert own.reaches() == frozenset()
    assert LmEvalConfig(tasks=("a/own.yaml", "gsm8k")).reaches() == {"hub"}


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("task: odd\n", "a task needs `task`, its name, and `dataset_path`"),
        (
            ANSWERS.replace("do_sample: false", "repetition_penalty: 2"),
            "the task sets generation_kwargs.repetition_penalty, which no engine here has",
        ),
        (CHOICES.replace("sums.jsonl", "none.jsonl"), "none.jsonl"),
        (CHOICES.replace("{{question}}", "{{asked}}"), "UndefinedError: 'asked' is undefined"),
    ],
)
def test_a_task_that_cannot_be_asked_is_refused(tiny, folder, tmp_path, said, sentence):
    (folder / "odd.yaml").write_text(said)
    with pytest.raises(UserError, match=sentence):
        evaluated(tiny, folder, tmp_path, "odd.yaml")


def test_a_text_longer_than_the_context_is_scored_in_windows_token_by_token(tiny):
    policy = load_policy(tiny)
    engine = TorchRolloutEngine(policy.model, policy.tokenizer)
    model = PolicyLM(
        policy,
        engine,
        as_messages=True,
        batch_size=2,
        max_tokens=4,
        seed=0,
        progress=lambda _done, _of: None,
    )
    text = "What is 1 + 2? " * 40
    ids = policy.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(ids) > 128  # two windows at the least
    asked = [SimpleNamespace(args=(text,)), SimpleNamespace(args=("What is",))]
    long, short = model.loglikelihood_rolling(asked)
    (few,) = [policy.tokenizer("What is", add_special_tokens=False)["input_ids"]]
    prefix = policy.tokenizer.bos_token_id
    prefix = policy.tokenizer.eos_token_id if prefix is None else prefix
    with torch.inference_mode():
        logits = policy.model(input_ids=torch.tensor([[prefix, *few]])).logits[0].float()
    expected = sum(logits.log_softmax(-1)[t, token].item() for t, token in enumerate(few))
    assert short == pytest.approx(expected, abs=1e-4)
    # Every token is scored once: about as unlikely, on average, as those of the short text.
    assert long / len(ids) == pytest.approx(short / len(few), rel=0.5)
