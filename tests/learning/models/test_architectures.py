"""Architectures of docs/architectures.md: trainer and engine compute what transformers does."""

import json

import pytest
import torch

from posttrain.data.rows import TokenRow, TokenTable
from posttrain.learning.models.adapters import attach_adapter
from posttrain.learning.models.architectures import NOT_DRAWN, NOT_PACKED, NOT_TRAINED
from posttrain.learning.models.context import NO_LIMIT, context_length
from posttrain.learning.models.logprobs import batch_logprobs, token_logprobs
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine
from posttrain.learning.training.packing import check_packing
from posttrain.learning.training.prepare import check_quiet, without_dropout
from posttrain.stage.errors import UserError
from posttrain.stage.spec import Dag, Reference, Stage
from tasks.import_model import TASK as IMPORT
from tasks.probe import TASK as PROBE
from tasks.sft import TASK as SFT
from tests.architectures import ARCHITECTURES, DOCUMENT, config_of, model_of, refusal, row_of

TOLERANCE = 1e-4
IDS = torch.randint(3, 260, (3, 24), generator=torch.Generator().manual_seed(3))
WANTED = torch.arange(24).expand(3, 24) > 0
PROMPTS = [Prompt(f"p{n}", tuple(IDS.flatten()[n : 2 * n].tolist())) for n in (20, 3, 9, 14)]
ROWS = [TokenRow(tuple(IDS.flatten()[n : 2 * n].tolist()), start=1) for n in (20, 5, 23)]


def logprobs_of(model, ids=IDS, wanted=WANTED):
    with torch.no_grad():
        return token_logprobs(model, ids, wanted_BT=wanted).logprobs_BT


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["2 + 3 = 5\n#### 5"], vocab_size=265)


@pytest.fixture(scope="module", params=list(ARCHITECTURES))
def model(request):
    model = model_of(request.param)
    # Many end tokens, so that rows of a batch end at all times.
    model.generation_config.eos_token_id = list(range(2, 40))
    return model


def test_the_trainer_computes_transformers_own_distribution(model):
    with torch.no_grad():
        logp = model(input_ids=IDS, use_cache=False).logits[:, :-1].float().log_softmax(-1)
    theirs = logp.gather(-1, IDS[:, 1:, None])[..., 0]
    assert theirs.std() > 0.1, "a model that is sure of nothing would hide what is wrong"
    torch.testing.assert_close(logprobs_of(model)[:, 1:], theirs, atol=TOLERANCE, rtol=0)


def test_packed_rows_are_those_alone_or_packing_is_refused(model):
    apart = [logprobs_of(model, torch.tensor([row.ids]), torch.arange(len(row.ids))[None] > 0)
             for row in ROWS]  # fmt: skip
    with torch.no_grad():
        padded, mask = batch_logprobs(model, TokenTable(ROWS, pad=0).batch(range(3)))
        packed, _ = batch_logprobs(model, TokenTable(ROWS, pad=0, packed=True).batch(range(3)))
    alone = torch.cat([row[0, 1:] for row in apart])
    torch.testing.assert_close(padded[mask], alone, atol=TOLERANCE, rtol=0)
    refused = refusal(check_packing, model)
    if refused is None:
        torch.testing.assert_close(packed[mask], alone, atol=TOLERANCE, rtol=0)
    else:
        assert "set packing to false" in refused
        assert (packed[mask] - alone).abs().max() > TOLERANCE


def test_the_engine_draws_from_what_the_trainer_computes_or_says_that_it_cannot(model, tokenizer):
    # Six places for eight samples: a prompt is read beside rows that are being drawn.
    engine = TorchRolloutEngine(model, tokenizer, batch_size=6)
    params = SamplingParams(num_samples=2, max_tokens=12, seed=1)
    if model.config.model_type in NOT_DRAWN:
        with pytest.raises(UserError, match=f"'{model.config.model_type}' .* set engine to vllm"):
            engine.sample(PROMPTS, params)
        return
    prompts = {prompt.id: prompt.token_ids for prompt in PROMPTS}
    for sample in engine.sample(PROMPTS, params):
        before = prompts[sample.prompt_id]
        ids = torch.tensor([before + sample.token_ids])
        wanted = torch.arange(ids.shape[1])[None] >= len(before)
        found = logprobs_of(model, ids, wanted)[0, len(before) :]
        torch.testing.assert_close(torch.tensor(sample.logprobs), found, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_table_says_what_was_measured(name):
    assert row_of(name) in DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_adapters_learn_in_every_layer_and_are_merged_into_what_they_computed(name):
    model = model_of(name)
    before = logprobs_of(model)
    adapter = attach_adapter(model, rank=2, alpha=4)
    # All of them are at 0 in one of two factors, so that the first output is the base's.
    torch.testing.assert_close(logprobs_of(model), before, atol=TOLERANCE, rtol=0)
    adapted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in adapted:
            parameter.add_(torch.randn(parameter.shape, generator=generator) / 10)
    token_logprobs(model, IDS, wanted_BT=WANTED).logprobs_BT.sum().backward()
    assert all(parameter.grad is not None for parameter in adapted)
    learned = logprobs_of(model)
    assert (learned - before).abs().max() > 0.01
    adapter.merge()
    torch.testing.assert_close(logprobs_of(model), learned, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        ("gpt_bigcode", {"attn_pdrop": 0.5, "resid_pdrop": 0.5, "embd_pdrop": 0.5}),
        ("opt", {"dropout": 0.5}),
        ("mixtral", {"router_jitter_noise": 0.5}),
        ("seed_oss", {"residual_dropout": 0.5}),
        ("starcoder2", {"residual_dropout": 0.5, "embedding_dropout": 0.5}),
    ],
)
def test_without_dropout_training_mode_is_quiet_whatever_its_noise_is_called(name, noise):
    model = model_of(name, **noise)
    quiet = logprobs_of(model)
    assert not torch.allclose(logprobs_of(model.train()), quiet, atol=TOLERANCE)
    without_dropout(model)
    torch.testing.assert_close(logprobs_of(model), quiet, atol=TOLERANCE, rtol=0)
    check_quiet(model)
    assert model.training
    assert all(getattr(model.config, key) == value for key, value in noise.items())


@pytest.mark.parametrize(
    ("name", "noise"), [("falcon", "hidden_dropout"), ("phimoe", "router_jitter_noise")]
)
def test_noise_that_stays_is_refused_by_the_names_of_its_settings(name, noise):
    model = model_of(name, **{noise: 0.5})
    quiet = logprobs_of(model)
    without_dropout(model)
    assert torch.equal(logprobs_of(model), quiet), "evaluation mode stays what it was"
    with pytest.raises(UserError, match=f"'{name}' is random in .* set .*{noise} .*to 0 in"):
        check_quiet(model)


@pytest.mark.parametrize(
    ("name", "length"), [("llama", 64), ("mpt", 64), ("gemma3", 64), ("mamba", NO_LIMIT)]
)
def test_the_context_is_what_the_architecture_states(name, length):
    assert context_length(config_of(name)) == length


def imported(folder, task, **parameters):
    """A recipe's DAG that imports the folder and gives it to one more stage."""
    dag = Dag()
    model = {"files.model": Reference.to_file(folder)}
    first = dag.add(Stage("import_model", IMPORT, IMPORT.config(path="m"), model))
    inputs = {port: Reference.to_file(folder) for port in task.inputs if port != "policy"}
    dag.add(Stage("then", task, task.config(**parameters), {"policy": first["policy"], **inputs}))
    return dag


@pytest.mark.parametrize("name", [*NOT_TRAINED, *NOT_DRAWN])
def test_the_plan_refuses_what_is_known_not_to_work(name, tmp_path):
    described = {"model_type": name}
    (tmp_path / "config.json").write_text(json.dumps(described))
    stage = imported(tmp_path, PROBE).stages["import_model"]
    refused = refusal(IMPORT.refuse, stage, imported(tmp_path, PROBE))
    assert f"the architecture '{name}'" in refused
    assert ("set engine to vllm" in refused) == (name in NOT_DRAWN)
    # What only trains is not kept from it by what cannot be drawn.
    only_trained = refusal(IMPORT.refuse, stage, imported(tmp_path, SFT))
    assert (only_trained is None) == (name in NOT_DRAWN)


PACKED = {"learner": {"packing": True}}


def test_the_plan_refuses_to_pack_what_is_known_to_mix_rows(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    dag = imported(tmp_path, SFT, **PACKED)
    assert refusal(IMPORT.refuse, dag.stages["import_model"], dag) == (
        "then.learner.packing: the architecture 'mamba' has layers whose state goes on from one"
        " row into the next, so that packed rows are not what they are alone; set"
        " then.learner.packing to false"
    )
    for fine, parameters in (("mamba", {}), ("llama", PACKED)):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": fine}))
        dag = imported(tmp_path, SFT, **parameters)
        assert refusal(IMPORT.refuse, dag.stages["import_model"], dag) is None


def test_what_is_known_to_mix_packed_rows_was_measured_to():
    cells = [line.split(" | ") for line in DOCUMENT.read_text().splitlines() if " | " in line]
    refused = {each[0].removeprefix("| ") for each in cells if each[3:4] == ["refused"]}
    assert set(NOT_PACKED) <= refused


def test_the_plan_looks_at_the_language_model_of_one_that_sees(tmp_path):
    described = {"model_type": "seeing", "text_config": {"model_type": "rwkv"}}
    (tmp_path / "config.json").write_text(json.dumps(described))
    dag = imported(tmp_path, PROBE)
    assert "then: the architecture 'rwkv'" in refusal(
        IMPORT.refuse, dag.stages["import_model"], dag
    )
