import errno
import json

import pytest
import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.tokenizer import tokenizer_digest
from posttrain.stage.errors import UserError


@pytest.fixture
def saved(model, tokenizer, tmp_path):
    save_policy(model, tokenizer, tmp_path / "policy")
    return tmp_path / "policy"


def test_saving_and_loading_keeps_every_weight_and_plain_transformers_agrees(saved, model):
    policy = load_policy(saved)
    assert weights_digest(policy.model) == weights_digest(model)
    ids = torch.tensor([[1, 5, 9, 11]])
    plain = AutoModelForCausalLM.from_pretrained(saved)
    assert torch.equal(plain(input_ids=ids).logits, policy.model(input_ids=ids).logits)
    assert not policy.model.training


def test_saving_again_gives_the_same_bytes(saved, tmp_path):
    policy = load_policy(saved)
    save_policy(policy.model, policy.tokenizer, tmp_path / "again")
    names = sorted(path.name for path in saved.iterdir())
    assert names == sorted(path.name for path in (tmp_path / "again").iterdir())
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (saved / name).read_bytes(), name
        assert str(tmp_path).encode() not in (saved / name).read_bytes()


def test_a_tokenizer_is_its_own_file_and_not_the_usual_one_of_the_architecture(tokenizer, tmp_path):
    """Qwen2's own tokenizer would part the space from the sign, and add a token to the end."""
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1,
    )  # fmt: skip
    save_policy(Qwen2ForCausalLM(config), tokenizer, tmp_path)
    loaded = load_policy(tmp_path).tokenizer
    assert tokenizer_digest(loaded) == tokenizer_digest(tokenizer)
    assert loaded("7 + 5 = 12").input_ids == tokenizer("7 + 5 = 12").input_ids
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(UserError, match="tokenizer_config.json: this is not JSON"):
        load_policy(tmp_path)


def test_the_weights_digest_sees_one_flipped_bit_and_a_swap_of_names(model):
    before = weights_digest(model)
    weight = model.model.layers[0].self_attn.q_proj.weight
    weight.data.view(torch.int32)[0, 0] ^= 1
    assert weights_digest(model) != before
    weight.data.view(torch.int32)[0, 0] ^= 1
    assert weights_digest(model) == before
    other = model.model.layers[0].self_attn.k_proj.weight
    weight.data, other.data = other.data, weight.data
    assert weights_digest(model) != before


def test_weights_depend_on_the_seed_alone_and_leave_the_generator_alone(tokenizer):
    digests = []
    for seed, noise in ((0, 1), (0, 2), (1, 1)):
        torch.manual_seed(noise)
        model = build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=seed)
        drawn = torch.rand(1)
        torch.manual_seed(noise)
        assert torch.equal(drawn, torch.rand(1))
        digests.append(weights_digest(model))
    assert digests[0] == digests[1] != digests[2]


def test_weights_that_are_not_finite_are_not_saved(model, tokenizer, tmp_path):
    with torch.no_grad():
        model.model.norm.weight[3] = torch.inf
    with pytest.raises(
        UserError, match=r"1 weights are not finite .* model\.norm\.weight the first"
    ):
        save_policy(model, tokenizer, tmp_path / "policy")
    assert not list(tmp_path.rglob("*.safetensors"))


def test_pickled_weights_are_refused(saved):
    (saved / "model.safetensors").unlink()
    torch.save({}, saved / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pickled \(pytorch_model.bin\); save .* safetensors"):
        load_policy(saved)


def test_a_model_that_brings_its_own_code_is_refused(saved):
    config = json.loads((saved / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "evil.Model"}
    (saved / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="brings its own code"):
        load_policy(saved)


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        ("config.json", "no config.json"),
        ("model.safetensors", "there are no weights"),
        ("tokenizer.json", "no tokenizer.json"),
    ],
)
def test_a_missing_file_is_named(saved, missing, sentence):
    (saved / missing).unlink()
    with pytest.raises(UserError, match=sentence):
        load_policy(saved)


def test_an_unknown_directory_an_unknown_architecture_and_torn_weights_are_refused(saved, tmp_path):
    with pytest.raises(UserError, match="no such checkpoint directory"):
        load_policy(tmp_path / "nowhere")
    weights = saved / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="transformers cannot load this"):
        load_policy(saved)
    weights.write_bytes(whole)
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(config | {"model_type": "martian"}))
    with pytest.raises(UserError, match="martian"):
        load_policy(saved)


def test_weights_that_lack_a_tensor_are_refused_rather_than_invented(saved):
    from safetensors.torch import load_file, save_file

    tensors = load_file(saved / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, saved / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"lack 'model.layers.1.mlp.up_proj.weight'"):
        load_policy(saved)


def test_a_tokenizer_larger_than_the_embeddings_is_refused(saved, tokenizer):
    from posttrain.learning.models.tokenizer import train_tokenizer

    words = [f"word{chr(97 + i)}{chr(97 + j)} " for i in range(20) for j in range(20)] * 3
    larger = train_tokenizer(words, vocab_size=400)
    assert len(larger) > len(tokenizer)
    larger.save_pretrained(saved)
    with pytest.raises(UserError, match=r"the tokenizer has \d+ tokens but the model embeds"):
        load_policy(saved)


def test_a_full_disk_is_said_to_be_full(model, tokenizer, tmp_path, monkeypatch):
    def full(_path):
        # What safetensors 0.8 raised on a full file system.
        text = "Error while serializing: I/O error: No space left on device (os error 28)"
        raise SafetensorError(text)

    monkeypatch.setattr(model, "save_pretrained", full)
    with pytest.raises(OSError, match="No space left") as caught:
        save_policy(model, tokenizer, tmp_path)
    assert caught.value.errno == errno.ENOSPC
