import pytest
from transformers import LlamaForCausalLM, MambaConfig, MambaForCausalLM

from posttrain.errors import UserError
from posttrain.models.load import load_policy, load_tokenizer, weights_digest
from posttrain.pipeline.context import StageContext
from tasks.import_model import TASK
from tasks.import_model.stage import run

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def imported(path, tmp_path):
    outputs = {"policy": tmp_path / "imported"}
    context = StageContext.quiet(tmp_path / "scratch")
    metrics = run(TASK.config(path=str(path)), {"files.model": path}, outputs, context)
    return outputs["policy"], metrics


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


def test_an_architecture_without_a_context_length_is_refused(base, tmp_path):
    tokenizer = load_tokenizer(base)
    config = MambaConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1)
    MambaForCausalLM(config).save_pretrained(tmp_path / "mamba")
    tokenizer.save_pretrained(tmp_path / "mamba")
    with pytest.raises(UserError, match="'mamba' states no max_position_embeddings"):
        imported(tmp_path / "mamba", tmp_path)


def test_a_directory_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no config.json"):
        imported(tmp_path / "empty", tmp_path)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "either path .* or name"),
        ({"path": "models/x", "name": "org/x", "revision": COMMIT}, "either path .* or name"),
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
