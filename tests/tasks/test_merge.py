"""The merge of checkpoints: files, records, number formats, and what is refused."""

import json

import pytest
import torch

from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.record import trained_from
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Reference, Stage
from tasks.merge import TASK
from tasks.merge.config import MergeConfig
from tasks.merge.stage import run


@pytest.fixture(scope="module")
def folders(base, tmp_path_factory):
    """The base, and two models that differ from it by 1 in one matrix and by -3 in another."""
    root = tmp_path_factory.mktemp("models")
    for name, move, by in (("one", "q_proj", 1.0), ("two", "k_proj", -3.0)):
        policy = load_policy(base)
        for each, parameter in policy.model.named_parameters():
            if move in each:
                parameter.data += by
        save_policy(policy.model, policy.tokenizer, root / name)
    return {"base": base, "one": root / "one", "two": root / "two"}


def merge(tmp_path, method, **inputs):
    outputs = {"policy": tmp_path / "merged", "report": tmp_path / "report.json"}
    metrics = run(
        MergeConfig.parse({"method": method}, where="merge"),
        inputs,
        outputs,
        StageContext.quiet(tmp_path / "scratch"),
    )
    return load_policy(outputs["policy"], dtype=None), metrics, outputs


def test_changes_are_added_to_the_base_and_the_rest_keeps_its_bits(folders, tmp_path):
    models = {"policies.one": folders["one"], "policies.two": folders["two"]}
    made, metrics, outputs = merge(
        tmp_path, {"kind": "task_arithmetic", "scale": 1.0}, base=folders["base"], **models
    )
    base, one, two = (
        dict(load_policy(folders[name]).model.named_parameters()) for name in ("base", "one", "two")
    )
    for name, weight in made.model.named_parameters():
        if "q_proj" in name:
            assert torch.allclose(weight, one[name], atol=1e-6)
        elif "k_proj" in name:
            assert torch.allclose(weight, two[name], atol=1e-6)
        else:
            assert torch.equal(weight, base[name])
    # The lineage of the base goes on with the base itself.
    assert trained_from(made.model)[-1] == weights_digest(load_policy(folders["base"]).model)
    # From the first it differs where the second moved: a mean square of 9 n / N.
    moved = sum(each.numel() for name, each in base.items() if "k_proj" in name)
    whole = sum(each.numel() for each in base.values())
    assert metrics["merge/distance/one"] == pytest.approx(3 * (moved / whole) ** 0.5, rel=1e-5)
    assert json.loads(outputs["report"].read_text())["method"] == "task_arithmetic"


def test_the_number_format_of_the_base_is_kept(folders, tmp_path):
    policy = load_policy(folders["base"], dtype=torch.bfloat16)
    save_policy(policy.model, policy.tokenizer, tmp_path / "half")
    made, _, _ = merge(tmp_path, "ties", base=tmp_path / "half", **{"policies.one": folders["one"]})
    assert {each.dtype for each in made.model.parameters()} == {torch.bfloat16}
    # Whoever looks for the start loads it in float32.
    assert trained_from(made.model)[-1] == weights_digest(load_policy(tmp_path / "half").model)


def test_what_a_narrow_format_loses_is_told(folders, tmp_path):
    """A change of 1e-5 is less than bfloat16 can add to most weights: it does not arrive."""
    half = load_policy(folders["base"], dtype=torch.bfloat16)
    save_policy(half.model, half.tokenizer, tmp_path / "half")
    one = load_policy(tmp_path / "half")
    for parameter in one.model.parameters():
        parameter.data += 1e-5
    save_policy(one.model, one.tokenizer, tmp_path / "one")
    models = {"base": tmp_path / "half", "policies.one": tmp_path / "one"}
    _, metrics, _ = merge(tmp_path, {"kind": "task_arithmetic", "scale": 1.0}, **models)
    assert 5e-6 < metrics["merge/distance/one"] < 2e-5
    assert metrics["merge/rounded_off"] == pytest.approx(metrics["merge/distance/one"], rel=0.01)


def test_weights_that_are_read_in_another_way_are_refused(folders, tmp_path):
    tokenizer = load_policy(folders["base"]).tokenizer
    four = build_llama(tokenizer, hidden=16, layers=1, heads=4, seed=0)
    save_policy(four, tokenizer, tmp_path / "four")
    models = {"policies.four": tmp_path / "four", "policies.one": folders["one"]}
    with pytest.raises(UserError, match="'one' reads its weights in another way .* its head_dim"):
        merge(tmp_path, "average", **models)


def test_models_that_do_not_fit_are_refused(folders, tmp_path):
    tokenizer = load_policy(folders["base"]).tokenizer
    wide = build_llama(tokenizer, hidden=32, layers=1, heads=2, seed=0)
    save_policy(wide, tokenizer, tmp_path / "wide")
    with pytest.raises(UserError, match="'wide' has not the weights of the others, such as"):
        merge(
            tmp_path,
            "average",
            **{"policies.one": folders["one"], "policies.wide": tmp_path / "wide"},
        )
    other = train_tokenizer(["quite another text"] * 9, vocab_size=280)
    save_policy(build_llama(other, hidden=16, layers=1, heads=2, seed=0), other, tmp_path / "other")
    with pytest.raises(UserError, match="merge: other: the tokenizers differ"):
        merge(
            tmp_path,
            "average",
            **{"policies.one": folders["one"], "policies.other": tmp_path / "other"},
        )


@pytest.mark.parametrize(
    ("method", "ports", "said"),
    [
        ("ties", {}, "ties starts from what training added to a base, and none is connected"),
        ("average", {"base"}, "average does not look at a base; leave it out"),
    ],
)
def test_the_plan_refuses_a_base_too_few_or_too_many(method, ports, said):
    made = Reference(ArtifactKind.CHECKPOINT, stage="sft", output="policy")
    inputs = dict.fromkeys({"policies.sft", *ports}, made)
    config = MergeConfig.parse({"method": method}, where="merge")
    with pytest.raises(UserError, match=said):
        TASK.refuse(Stage("merge", TASK, config, inputs), Dag())
