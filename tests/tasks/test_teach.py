"""A teacher is asked once, and a student learns what it said."""

from pathlib import Path

import polars as pl
import pytest
import torch

from posttrain.data.rows import encode_rows
from posttrain.data.soft_targets import read_soft_targets
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.pipeline.recipe import load_recipe
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.sft.config import SftConfig
from tasks.sft.stage import run as sft
from tasks.teach.config import TeachConfig
from tasks.teach.stage import run as teach

ROOT = Path(__file__).parents[2]
STUDENT = {
    "epochs": 20.0,
    "batch_tokens": 256,
    "optimization": {"learning_rate": 0.01},
    "loss": {"kind": "soft_targets"},
}


def quiet(folder):
    return StageContext.quiet(folder)


@pytest.fixture(scope="module")
def teacher(base, tmp_path_factory):
    """Directory of a wider model than the student, with its tokenizer."""
    tokenizer = load_policy(base).tokenizer
    path = tmp_path_factory.mktemp("teacher") / "policy"
    model = build_llama(tokenizer, hidden=32, layers=1, heads=2, seed=7)
    with torch.no_grad():
        # One from nothing says nothing: every token is as likely.
        model.get_output_embeddings().weight.mul_(30)
    save_policy(model, tokenizer, path)
    return path


@pytest.fixture
def inputs(answers, base, teacher, write):
    rows = write(answers.filter("verified").head(12))
    return {"rows": rows, "policy": base, "teacher": teacher}


def taught(inputs, folder, **settings):
    outputs = {"targets": folder / "targets.parquet"}
    config = TeachConfig.parse({"top_k": 8, **settings}, where="teach")
    return outputs["targets"], teach(config, inputs, outputs, quiet(folder / "scratch"))


def test_it_says_of_every_learned_token_what_the_teacher_holds_to_be_likely(inputs, tmp_path):
    path, metrics = taught(inputs, tmp_path)
    table, rows = pl.read_parquet(path), pl.read_parquet(inputs["rows"])
    policy = load_policy(inputs["teacher"])
    assert set(table["teacher"]) == {weights_digest(policy.model)}
    assert table["parents"].list.first().to_list() == rows["id"].to_list()
    found, total, own = read_soft_targets(path), 0, []
    encoded = encode_rows(policy.tokenizer, rows["prompt"].to_list(), rows["text"].to_list())
    for name, row in zip(rows["id"], encoded, strict=True):
        said = found[name]
        assert said.token_ids == tuple(row.ids)
        assert said.places == tuple(range(row.start, len(row.ids)))
        with torch.no_grad():
            logits = policy.model(torch.tensor([row.ids])).logits[0, row.start - 1 : -1]
        whole = logits.log_softmax(-1)
        assert torch.allclose(said.targets.logprobs_NK, whole.topk(8).values, atol=1e-4)
        assert torch.allclose(
            whole.gather(-1, said.targets.ids_NK.long()), said.targets.logprobs_NK, atol=1e-4
        )
        total += row.num_learned
        own += [float(whole[at, row.ids[row.start + at]]) for at in range(row.num_learned)]
    assert metrics["teach/num_tokens"] == total
    assert metrics["teach/nll"] == pytest.approx(-sum(own) / total, rel=1e-4)
    assert 8 / 290 < metrics["teach/covered"] < 1


def test_the_student_comes_to_say_what_its_teacher_says(inputs, tmp_path):
    path, _ = taught(inputs, tmp_path, top_k=32)
    learned = {"policy": inputs["policy"], "traces": inputs["rows"], "targets": path}
    outputs = {"policy": tmp_path / "policy", "curve": tmp_path / "curve.parquet"}
    sft(SftConfig.parse(STUDENT, where="sft"), learned, outputs, quiet(tmp_path / "sft"))
    losses = pl.read_parquet(outputs["curve"]).filter(metric="sft/loss").sort("step")["value"]
    assert losses[-1] < 0.6 * losses[0]


def test_a_stage_that_was_killed_asks_only_for_what_is_missing(inputs, tmp_path, monkeypatch):
    whole, first = taught(inputs, tmp_path / "whole", rows_at_once=4)
    asked = []
    from posttrain.learning.training.teachers import LocalTeacher

    answer = LocalTeacher.ask

    def counting(self, rows, **settings):
        asked.append(len(rows))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return answer(self, rows, **settings)

    monkeypatch.setattr(LocalTeacher, "ask", counting)
    with pytest.raises(KeyboardInterrupt):
        taught(inputs, tmp_path / "cut", rows_at_once=4)
    again, second = taught(inputs, tmp_path / "cut", rows_at_once=4)
    assert asked == [4, 4, 4, 4]
    assert (again.read_bytes(), second) == (whole.read_bytes(), first)


def test_rows_that_were_taught_as_other_tokens_are_refused(inputs, tmp_path):
    text = "{{ bos_token }}{% for m in messages %}Q {{ m.content }}{% endfor %}"
    path, _ = taught(inputs, tmp_path, template={"kind": "jinja", "text": text})
    learned = {"policy": inputs["policy"], "traces": inputs["rows"], "targets": path}
    outputs = {"policy": tmp_path / "policy", "curve": tmp_path / "curve.parquet"}
    with pytest.raises(UserError, match="give the stage that asks the teacher the same policy"):
        sft(SftConfig.parse(STUDENT, where="sft"), learned, outputs, quiet(tmp_path / "sft"))


def test_rows_that_no_teacher_read_are_left_out_and_counted(inputs, answers, write, tmp_path):
    path, _ = taught(inputs, tmp_path)
    more = write(answers.filter("verified").head(20), "more")
    context = quiet(tmp_path / "sft")
    outputs = {"policy": tmp_path / "policy", "curve": tmp_path / "curve.parquet"}
    config = SftConfig.parse({**STUDENT, "epochs": 1.0}, where="sft")
    metrics = sft(
        config, {"policy": inputs["policy"], "traces": more, "targets": path}, outputs, context
    )
    assert metrics["sft/num_rows"] == 12
    other = write(answers.filter(~pl.col("verified")).head(20), "other")
    lax = SftConfig.parse({**STUDENT, "require_verified": False}, where="sft")
    with pytest.raises(UserError, match="has read none of the 20 rows"):
        sft(lax, {"policy": inputs["policy"], "traces": other, "targets": path}, outputs, context)


def test_another_tokenizer_and_too_many_tokens_are_refused(inputs, tmp_path):
    other = train_tokenizer(["other words"], vocab_size=270)
    save_policy(build_llama(other, hidden=16, layers=1, heads=2, seed=0), other, tmp_path / "other")
    with pytest.raises(UserError, match="the policy and its teacher: the tokenizers differ"):
        taught({**inputs, "teacher": tmp_path / "other"}, tmp_path)
    with pytest.raises(UserError, match="5000 tokens are asked for, and the tokenizer has"):
        taught(inputs, tmp_path, top_k=5000)


@pytest.mark.slow  # three attempts
def test_a_killed_student_ends_with_the_same_bytes(inputs, tmp_path, kill_runs):
    path, _ = taught(inputs, tmp_path / "teach")
    kill_runs(
        tmp_path,
        [("step", 1), ("fsync", 20)],
        task="sft",
        config=STUDENT | {"epochs": 8.0, "checkpoint_every": 1},
        inputs={"policy": inputs["policy"], "traces": inputs["rows"], "targets": path},
        outputs=["policy", "curve"],
    )


def test_a_loss_without_targets_and_targets_without_a_loss_are_refused_by_the_plan(tmp_path):
    def refused(said):
        (tmp_path / "recipe.yaml").write_text("flow: flows.post_training\nformat: 3\n" + said)
        with pytest.raises(UserError) as caught:
            load_recipe(tmp_path).resolve(ROOT).check()
        return str(caught.value)

    teaching = "{task: tasks.teach, inputs: {rows: curate.traces, policy: pretrain.policy%s}%s}"
    endpoint = ", endpoint: {base_url: 'http://127.0.0.1:1/v1', model: m}"
    assert "sft.loss: soft_targets goes by what a teacher says" in refused(
        "sft: {loss: soft_targets}\n"
    )
    assert "teach: there is no teacher; connect one" in refused(f"teach: {teaching % ('', '')}\n")
    both = teaching % (", teacher: pretrain.policy", endpoint)
    assert "and one is asked; leave one of them out" in refused(f"teach: {both}\n")
    wired = f"teach: {teaching % ('', endpoint)}\nsft: {{inputs: {{targets: teach.targets}}}}\n"
    assert "the loss cross_entropy does not read it" in refused(wired)
    warm = f"teach: {teaching % ('', endpoint + ', temperature: 2.0')}\n"
    assert "an endpoint gives log-probabilities at temperature 1" in refused(warm)
