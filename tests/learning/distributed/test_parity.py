"""Two processes learn what one does."""

import pytest
from transformers import AutoModelForCausalLM

from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import load_policy, save_policy
from posttrain.stage.context import StageContext
from tasks.teach.config import TeachConfig
from tasks.teach.stage import run as teach

pytestmark = pytest.mark.slow
TOLERANCE = 1e-4


def gap(one, two):
    """The largest difference of two curves, which must have the same steps and metrics.

    Accuracies count signs, and at the first step those are of gaps that are rounding alone.
    """
    assert one.keys() == two.keys()
    return max(abs(one[key] - two[key]) for key in one if not key[1].endswith("accuracy"))


@pytest.mark.core
def test_sft_in_two_processes_has_the_curve_of_one(stages, tmp_path):
    one = stages.run("sft", tmp_path / "one", processes=1)
    two = stages.run("sft", tmp_path / "two", processes=2)
    assert (one.outcome.error, two.outcome.error) == (None, None)
    assert gap(one.curve(), two.curve()) < TOLERANCE
    first, last = (one.curve()[step, "sft/loss"] for step in (1, max(s for s, _ in one.curve())))
    assert last < first - 0.2  # it learned something, so equal curves say something
    assert one.digests().keys() == two.digests().keys()
    weights = [AutoModelForCausalLM.from_pretrained(m.folder / "policy") for m in (one, two)]
    for mine, other in zip(*(model.parameters() for model in weights), strict=True):
        assert (mine - other).abs().max() < TOLERANCE


@pytest.mark.parametrize(
    ("task", "config"),
    [
        ("reward", {"parameterization": "head", "optimization": {"optimizer": "adamw"}}),
        ("preference", {"algorithm": "kto"}),
        (
            "sft",
            {
                "learner": {
                    "lora": {"rank": 2, "dora": True},
                    "weights": "nf4",
                    "ema_decay": 0.9,
                    "packing": True,
                    "early_stop": {"every": 3, "keep": "best"},
                },
                "micro_batch_tokens": 60,
            },
        ),
    ],
)
def test_other_kinds_of_training_have_the_curve_of_one_process(stages, tmp_path, task, config):
    one = stages.run(task, tmp_path / "one", processes=1, config=config)
    two = stages.run(task, tmp_path / "two", processes=2, config=config)
    assert (one.outcome.error, two.outcome.error) == (None, None)
    assert gap(one.curve(), two.curve()) < TOLERANCE
    assert one.outcome.metrics == pytest.approx(two.outcome.metrics, abs=1e-3)
    assert one.digests().keys() == two.digests().keys()


def test_a_student_of_two_processes_learns_what_its_teacher_says_as_one_does(stages, tmp_path):
    tokenizer = load_policy(stages.inputs["policy"]).tokenizer
    teacher = build_llama(tokenizer, hidden=24, layers=1, heads=2, seed=5)
    # One from nothing says nothing: every token is as likely.
    teacher.get_output_embeddings().weight.data.mul_(30)
    save_policy(teacher, tokenizer, tmp_path / "teacher")
    given = {"policy": stages.inputs["policy"], "traces": stages.inputs["traces"]}
    asked = {"rows": given["traces"], "policy": given["policy"], "teacher": tmp_path / "teacher"}
    given["targets"] = tmp_path / "targets.parquet"
    context = StageContext.quiet(tmp_path / "scratch")
    teach(TeachConfig(top_k=8), asked, {"targets": given["targets"]}, context)
    config = stages.steps | {"loss": "soft_targets", "learner": {"packing": True}}
    one, two = (
        stages.run("sft", tmp_path / str(n), processes=n, config=config, inputs=given)
        for n in (1, 2)
    )
    assert (one.outcome.error, two.outcome.error) == (None, None)
    assert gap(one.curve(), two.curve()) < TOLERANCE
    assert max(value for (_, metric), value in one.curve().items() if "grad_norm" in metric) > 0.01
