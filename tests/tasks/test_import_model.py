import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from transformers import LlamaConfig, LlamaForCausalLM

from posttrain.learning.models.load import load_policy, load_tokenizer, save_policy, weights_digest
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.import_model import TASK
from tasks.import_model.stage import run
from tests.architectures import model_of

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def imported(path, tmp_path, **options):
    outputs = {"policy": tmp_path / "imported", "report": tmp_path / "report.json"}
    context = StageContext.quiet(tmp_path / "scratch")
    metrics = run(TASK.config(path="models/x", **options), {"files.model": path}, outputs, context)
    return outputs["policy"], metrics


@pytest.fixture
def halved(base, tmp_path):
    """The base as an instruction-tuned model comes: bfloat16, and opinions about sampling."""
    policy = load_policy(base, dtype=torch.bfloat16)
    save_policy(policy.model, policy.tokenizer, tmp_path / "halved")
    opinions = {"eos_token_id": [2, 5], "temperature": 0.7, "repetition_penalty": 1.1}
    (tmp_path / "halved/generation_config.json").write_text(json.dumps(opinions))
    return tmp_path / "halved"


@pytest.mark.parametrize(
    ("asked", "kept"), [("auto", "BF16"), ("float32", "F32"), ("bfloat16", "BF16")]
)
def test_numbers_are_kept_in_the_format_asked_for(halved, tmp_path, asked, kept):
    policy, _ = imported(halved, tmp_path, dtype=asked)
    with safe_open(policy / "model.safetensors", framework="pt") as tensors:
        assert {tensors.get_slice(name).get_dtype() for name in tensors.keys()} == {kept}  # noqa: SIM118
    # Learners widen it, whatever is kept; from there on it is the same policy.
    assert weights_digest(load_policy(policy).model) == weights_digest(load_policy(halved).model)


def test_the_report_says_where_it_is_from_and_the_generation_config_goes_along(halved, tmp_path):
    policy, _ = imported(halved, tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["source"] == {"path": "models/x"}
    assert (report["architecture"], report["dtype"]) == ("LlamaForCausalLM", "bfloat16")
    assert report["generation_config"]["eos_token_id"] == [2, 5]
    # A temperature without do_sample cannot be saved; that it samples is what it meant.
    again = load_policy(policy)
    save_policy(again.model, again.tokenizer, tmp_path / "later")
    said = json.loads((tmp_path / "later/generation_config.json").read_text())
    assert (said["eos_token_id"], said["temperature"], said["do_sample"]) == ([2, 5], 0.7, True)


def test_the_report_has_the_license_that_the_card_states(halved, tmp_path):
    imported(halved, tmp_path)
    assert "license" not in json.loads((tmp_path / "report.json").read_text())
    (halved / "README.md").write_text("---\nlicense: other\nlicense_name: house\n---\n")
    imported(halved, tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["license"], report["license_name"]) == ("other", "house")


def test_a_generation_config_that_contradicts_itself_is_refused(halved, tmp_path):
    file = halved / "generation_config.json"
    file.write_text(json.dumps({"eos_token_id": 2, "num_beams": 1, "early_stopping": True}))
    with pytest.raises(
        UserError, match=r"halved/generation_config.json contradicts itself: `early"
    ):
        imported(halved, tmp_path)


def _cut_short(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:999])


def _quantize(folder):
    described = json.loads((folder / "config.json").read_text())
    described["quantization_config"] = {"quant_method": "awq", "bits": 4}
    (folder / "config.json").write_text(json.dumps(described))


def _other_vocabulary(folder):
    words = [f"word{chr(97 + i)}{chr(97 + j)} " for i in range(20) for j in range(20)]
    train_tokenizer(words * 3, vocab_size=300).save_pretrained(folder)


def _fail_to_render(folder):
    (folder / "chat_template.jinja").write_text("{{ raise_exception('no system message') }}")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (_cut_short, "damaged: transformers cannot load this: "),
        (_quantize, "damaged: transformers cannot load this: "),
        (_other_vocabulary, "damaged: the tokenizer has 300 tokens but the model embeds 2"),
        (_fail_to_render, "the tokenizer's chat template fails on one user message: no system"),
    ],
)
def test_a_model_that_cannot_be_used_is_refused_in_a_sentence(base, tmp_path, damage, sentence):
    shutil.copytree(base, tmp_path / "damaged")
    damage(tmp_path / "damaged")
    with pytest.raises(UserError) as refused:
        imported(tmp_path / "damaged", tmp_path)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "imported").exists()


def test_a_local_model_keeps_its_weights_and_its_tokenizer(base, tmp_path):
    policy, metrics = imported(base, tmp_path)
    assert weights_digest(load_policy(policy).model) == weights_digest(load_policy(base).model)
    assert (policy / "tokenizer.json").read_bytes() == (base / "tokenizer.json").read_bytes()
    assert metrics["import_model/vocab_size"] == len(load_tokenizer(base))


def test_an_architecture_that_changes_its_logits_in_its_own_way_is_refused(
    base, tmp_path, monkeypatch
):
    own = LlamaForCausalLM.forward

    def changed(model, *arguments, **options):
        output = own(model, *arguments, **options)
        output.logits = output.logits + 0.01
        return output

    monkeypatch.setattr(LlamaForCausalLM, "forward", changed)
    with pytest.raises(UserError, match="'llama' changes its logits after the output layer in a w"):
        imported(base, tmp_path)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("qwen2", None),
        ("qwen3_moe", "learner.router_loss is null (the checkpoint states 0.001)"),
        ("deepseek_v3", "no loss keeps its router even, as it was not made with one"),
    ],
)
def test_what_becomes_of_a_router_is_said(base, tmp_path, name, told):
    save_policy(model_of(name), load_tokenizer(base), tmp_path / "model")
    outputs = {"policy": tmp_path / "imported", "report": tmp_path / "report.json"}
    events = []
    context = StageContext.quiet(tmp_path / "scratch")
    run(TASK.config(path="m"), {"files.model": tmp_path / "model"}, outputs,
        replace(context, emit=events.append))  # fmt: skip
    notes = [event["line"] for event in events if event["kind"] == "note"]
    assert [told in note for note in notes] == ([True] if told else [])


def test_a_model_that_reads_both_ways_is_refused(base, tmp_path):
    """Its mask does not reach the past alone, as that of an encoder."""
    tokenizer = load_tokenizer(base)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, is_causal=False, initializer_range=0.3,
    )  # fmt: skip
    save_policy(LlamaForCausalLM(config), tokenizer, tmp_path / "both")
    with pytest.raises(UserError, match="'llama' reads what comes after a token too"):
        imported(tmp_path / "both", tmp_path)


def test_a_directory_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no config.json"):
        imported(tmp_path / "empty", tmp_path)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "neither path nor name is set"),
        ({"path": "models/x", "name": "org/x", "revision": COMMIT}, "path and name are set"),
        ({"name": "org/x"}, "'org/x' needs revision, the commit to take"),
        ({"name": "org/x", "revision": "main"}, "'org/x' needs revision, the commit to take"),
        ({"path": "models/x", "revision": COMMIT}, "revision belongs to a name on the hub"),
    ],
)
def test_a_source_that_is_not_one_thing_is_refused(values, sentence):
    with pytest.raises(UserError, match=sentence):
        TASK.config.parse(values, where="import_model")


def test_a_local_path_becomes_an_input_of_the_stage():
    assert TASK.config(path="models/x").local_files() == {"model": "models/x"}
    assert TASK.config(name="org/x", revision=COMMIT).local_files() == {}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tokenizer.json", "{", "not JSON: Expecting property name"),
        ("tokenizer.json", "[]", "it must hold one JSON object; save the model again"),
        ("tokenizer.json", '{"version": "1.0"}', "no tokenizer: "),
        ("generation_config.json", "null", "it must hold one JSON object; save the model again"),
        ("tokenizer_config.json", '{"tokenizer_class": 3}', "tokenizer_class must be a name"),
        ("config.json", '{"model_type": "llama", "hidden_size": "wide"}', "Validation error for"),
        ("special_tokens_map.json", "{]", "not JSON: Expecting property name"),
    ],
)
def test_a_file_of_the_model_that_cannot_be_read_is_named(base, tmp_path, name, content, said):
    shutil.copytree(base, tmp_path / "model")
    (tmp_path / "model" / name).write_text(content)
    with pytest.raises(UserError) as refused:
        imported(tmp_path / "model", tmp_path)
    assert str(refused.value).startswith(f"{tmp_path}/model/{name}: {said}")
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"path": None}, "neither path nor name is set; set one of them: path, the folder of"),
        ({"path": "model", "name": "own/model"}, "path and name are set; set one of them: path"),
    ],
)
def test_a_model_of_no_place_or_of_two_is_refused_for_what_it_is(source, said):
    with pytest.raises(UserError, match=f"^teacher: {said}"):
        TASK.config.parse(source, where="teacher")
