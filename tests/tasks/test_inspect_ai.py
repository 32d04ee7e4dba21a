"""A task of Inspect, in a file, on a tiny policy."""

import json
import math
import os

import polars as pl
import pytest

pytest.importorskip("inspect_ai", reason="Inspect is not installed here; run: make test")

from inspect_ai.log import read_eval_log
from scipy.stats import t as student

from posttrain.data.contexts import PromptContext, PromptInContext
from posttrain.data.templates import encode_prompts
from posttrain.learning.models.load import load_policy
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.inspect_ai import TASK
from tasks.inspect_ai.config import InspectConfig
from tasks.inspect_ai.stage import run
from tests.tiny_qwen import save_tiny_qwen

FILE = '''
"""Letters, asked one by one."""

from inspect_ai import Task, task
from inspect_ai.dataset import json_dataset
from inspect_ai.scorer import Score, accuracy, mean, scorer, stderr
from inspect_ai.solver import generate, system_message
from inspect_ai.tool import bash


@scorer(metrics=[accuracy(), stderr()])
def shorter(than):
    """Right where fewer letters are said."""

    async def score(state, target):
        return Score(value="C" if len(state.output.completion) < than else "I")

    return score


@scorer(metrics=[mean(), stderr()])
def letters():
    async def score(state, target):
        return Score(value=len(state.output.completion), answer=state.output.completion)

    return score


@task
def lengths(than: int = 9, heat: float = 0.0):
    return Task(
        dataset=json_dataset("asked.jsonl"),
        solver=[system_message("Be brief."), generate(temperature=heat, max_tokens=8)],
        scorer=[shorter(than), letters()],
        version=3,
    )


@task
def broken():
    return Task(dataset=json_dataset("asked.jsonl"), solver=generate(frequency_penalty=1.0))
'''
ASKED = [{"input": f"What is {n} + 2?", "target": str(n + 2)} for n in range(6)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("inspect") / "tiny"
    save_tiny_qwen(path, [f"{each['input']} {each['target']}" for each in ASKED] * 9, seed=3)
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    made = tmp_path_factory.mktemp("own") / "own.py"
    made.write_text(FILE)
    (made.parent / "asked.jsonl").write_text("".join(f"{json.dumps(e)}\n" for e in ASKED))
    return made


@pytest.fixture(autouse=True)
def surroundings():
    """The stage sets where Inspect keeps its traces."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def evaluated(policy, task, folder, **options):
    folder.mkdir(parents=True, exist_ok=True)
    config = InspectConfig.parse({"file": str(task), **options}, where="inspect_ai")
    outputs = {name: folder / f"{name}{port.type.suffix}" for name, port in TASK.outputs.items()}
    context = StageContext.quiet(folder / "scratch", seed=7)
    metrics = run(config, {"policy": policy}, outputs, context)
    return metrics, json.loads(outputs["report"].read_text()), outputs


def said(policy):
    """What the torch engine answers, greedily, in the conversation that the task makes."""
    engine = TorchRolloutEngine(policy.model, policy.tokenizer)
    context = PromptContext(system="Be brief.")
    asked = [PromptInContext(each["input"], context) for each in ASKED]
    return [
        engine.sample([Prompt("0", tuple(ids))], SamplingParams(max_tokens=8, temperature=0.0))[0]
        for ids in encode_prompts(policy.tokenizer, asked)
    ]


def test_answers_are_the_engines_own_and_scores_have_intervals(tiny, file, tmp_path):
    lengths = [len(each.text) for each in said(load_policy(tiny))]
    than = sorted(lengths)[3]
    metrics, report, outputs = evaluated(tiny, f"{file}@lengths", tmp_path, args={"than": than})
    right = [float(each < than) for each in lengths]
    share = sum(right) / 6
    assert 0 < share < 1
    assert metrics["inspect_ai/shorter/accuracy"] == pytest.approx(share)
    assert metrics["inspect_ai/letters/mean"] == pytest.approx(sum(lengths) / 6)
    # The standard error of a mean of six, and Student's interval with five degrees of freedom.
    middle = sum(lengths) / 6
    error = math.sqrt(sum((each - middle) ** 2 for each in lengths) / 5 / 6)
    reach = student.ppf(0.975, 5) * error
    figure = report["figures"]["letters/mean"]
    assert figure["stderr"] == pytest.approx(error)
    assert (figure["low"], figure["high"]) == pytest.approx((middle - reach, middle + reach))
    # Of what is right or wrong it is Wilson's, which is not symmetric.
    figure = report["figures"]["shorter/accuracy"]
    assert figure["stderr"] == pytest.approx(math.sqrt(share * (1 - share) / 5))
    assert 0 < figure["low"] < share < figure["high"] < 1
    samples = pl.read_parquet(outputs["samples"])
    told = [json.loads(each)[0] for each in samples["responses"]]
    assert told == [each.text for each in said(load_policy(tiny))]
    documents = pl.read_parquet(outputs["documents"])
    assert samples["parents"].to_list() == [[each] for each in documents["id"]]
    assert json.loads(documents["document"][0])["input"] == "What is 0 + 2?"
    assert (report["task_version"], report["num_documents"]) == (3, 6)


def test_the_same_is_the_same_bytes_and_inspect_reads_its_log(tiny, file, tmp_path):
    heat = {"args": {"heat": 1.0}, "epochs": 2}
    one, other = (
        evaluated(tiny, f"{file}@lengths", tmp_path / name, **heat)[2] for name in ("a", "b")
    )
    assert {name: path.read_bytes() for name, path in one.items()} == {
        name: path.read_bytes() for name, path in other.items()
    }
    log = read_eval_log(one["log"])
    assert (log.status, len(log.samples), log.eval.model) == ("success", 12, "posttrain/policy")
    assert str(file.parent) not in log.model_dump_json()
    # Drawn anew in each epoch.
    first, again = ([s.output.completion for s in log.samples if s.epoch == n] for n in (1, 2))
    assert first != again
    assert {each.scores["letters"].value for each in log.samples} == {
        len(text) for text in first + again
    }


def test_epochs_of_a_document_are_one_cluster(tiny, file, tmp_path):
    options = {"args": {"heat": 1.0}, "epochs": 3, "limit": 1}
    report = evaluated(tiny, f"{file}@lengths", tmp_path, **options)[1]
    assert (report["epochs"], report["num_documents"]) == (3, 1)
    # One document says nothing of others.
    figure = report["figures"]["letters/mean"]
    assert (figure["low"], figure["high"]) == (None, None)


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        ("@broken", "the task sets frequency_penalty, which no engine here has"),
        ("@nothing", "nothing"),
    ],
)
def test_what_cannot_be_asked_is_refused(tiny, file, tmp_path, task, sentence):
    with pytest.raises(UserError, match=sentence):
        evaluated(tiny, f"{file}{task}", tmp_path)


def test_the_file_and_what_it_reads_count():
    config = InspectConfig(file="bench/own.py@lengths", files=("bench/asked.jsonl",))
    assert config.read_files() == ("bench/own.py", "bench/asked.jsonl")
    assert config.reaches() == frozenset()
    with pytest.raises(UserError, match=r"inspect_ai.file"):
        InspectConfig.parse({"file": "gsm8k"}, where="inspect_ai")
