"""Adapters as other tools read them, and adapters from elsewhere, merged into their base."""

import json

import pytest
import torch
from huggingface_hub import ModelCard

from posttrain.learning.models.adapters import attach_adapter, load_adapter
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.publishing.hub.adapters import export_adapter, merge_adapter
from posttrain.publishing.hub.upload import push_folder
from posttrain.stage.errors import UserError

pytestmark = pytest.mark.slow
IDS = torch.tensor([[1, 2, 3, 4, 5]])


@pytest.fixture
def saved(tmp_path):
    """A base, an adapter on it that was changed as if trained, and what both say together."""
    tokenizer = train_tokenizer(["3 + 4 = 7"] * 9, vocab_size=270)
    model = build_llama(tokenizer, hidden=16, layers=2, heads=2, seed=0)
    save_policy(model, tokenizer, tmp_path / "base")
    policy = load_policy(tmp_path / "base")
    adapter = attach_adapter(policy.model, rank=2, alpha=4)
    with torch.no_grad():
        for name, each in policy.model.named_parameters():
            if "lora_B" in name:
                each.add_(0.5)
    adapter.save(tmp_path / "adapter")
    said = policy.model(input_ids=IDS).logits.detach()
    return tmp_path / "base", tmp_path / "adapter", said


@pytest.fixture
def exported(saved, tmp_path):
    base, adapter, _ = saved
    target = tmp_path / "exported"
    target.mkdir()
    export_adapter(adapter, target, base=str(base), license={"license": "mit"}, tags=["sft"])
    return target


def test_it_names_its_base_and_keeps_the_digest_beside(saved, exported):
    base, adapter, _ = saved
    before = json.loads((adapter / "adapter_config.json").read_text())
    after = json.loads((exported / "adapter_config.json").read_text())
    digest = weights_digest(load_policy(base).model)
    assert before["base_model_name_or_path"] == digest
    assert after == {**before, "base_model_name_or_path": str(base)}
    facts = json.loads((exported / "base.json").read_text())
    assert (facts["base"], facts["name"]) == (digest, str(base))
    head = ModelCard.load(exported / "README.md", ignore_metadata_errors=False).data
    assert (head.base_model, head.base_model_relation, head.library_name) == (
        str(base),
        "adapter",
        "peft",
    )
    assert head.tags == ["posttrain", "lora", "sft"]


def test_peft_finds_the_base_by_itself_and_says_the_same(saved, exported):
    from peft import AutoPeftModelForCausalLM

    _, _, said = saved
    loaded = AutoPeftModelForCausalLM.from_pretrained(str(exported)).eval()
    torch.testing.assert_close(loaded(input_ids=IDS).logits, said, rtol=1e-5, atol=1e-5)


def test_the_files_are_those_that_vllm_reads_as_a_lora_module(exported):
    """vLLM is not here: the names of files and tensors are those that its documents ask for."""
    from safetensors import safe_open

    config = json.loads((exported / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 2, 4)
    with safe_open(exported / "adapter_model.safetensors", "pt") as weights:
        names = list(weights.keys())
    assert names
    for name in names:
        assert name.startswith("base_model.model.model.layers.")
        assert name.endswith((".lora_A.weight", ".lora_B.weight"))


def test_an_exported_adapter_comes_back_into_posttrain(saved, exported):
    base, _, said = saved
    policy = load_policy(base)
    load_adapter(policy.model, exported)
    torch.testing.assert_close(policy.model(input_ids=IDS).logits, said, rtol=1e-5, atol=1e-5)


def test_an_adapter_from_elsewhere_is_merged_into_a_plain_model(saved, exported, tmp_path):
    base, _, said = saved
    # As peft alone saves it: it knows no digest.
    (exported / "base.json").unlink()
    told = merge_adapter(exported, base, tmp_path / "merged")
    assert told == f"the adapter names its base '{base}', and nothing tells whether {base} is that"
    merged = load_policy(tmp_path / "merged").model
    torch.testing.assert_close(merged(input_ids=IDS).logits, said, rtol=1e-5, atol=1e-5)


def test_what_is_no_adapter_or_a_pickle_or_of_another_base_is_refused(saved, exported, tmp_path):
    base, _, _ = saved
    with pytest.raises(UserError, match=r"there is no adapter_config.json"):
        merge_adapter(base, base, tmp_path / "out")
    policy = load_policy(base)
    with torch.no_grad():
        next(policy.model.parameters()).add_(1.0)
    save_policy(policy.model, policy.tokenizer, tmp_path / "other")
    with pytest.raises(UserError, match="the adapter belongs to weights"):
        merge_adapter(exported, tmp_path / "other", tmp_path / "out")
    (exported / "adapter_model.safetensors").rename(exported / "adapter_model.bin")
    with pytest.raises(UserError, match="a pickle from elsewhere is not opened"):
        merge_adapter(exported, base, tmp_path / "out")


def test_it_is_pushed_as_a_private_model(hub, api, exported):
    push_folder(exported, "me/adapter", message="adapter", hub=api)
    there = hub.model("me/adapter")
    assert there.private
    assert sorted(there.files) == [
        ".gitattributes",
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "base.json",
    ]
