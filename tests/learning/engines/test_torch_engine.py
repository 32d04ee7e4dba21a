"""The torch engine against transformers' generate and the trainer's log-probabilities."""

import copy
import importlib.util
import os
from unittest import mock

import pytest
import torch

from posttrain.learning.models.load import Policy
from posttrain.learning.models.logprobs import token_logprobs
from posttrain.learning.rollouts.engines import llama
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.engines.kinds.vllm import VllmEngine
from posttrain.learning.rollouts.engines.llama import LlamaDecoder, can_decode
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine
from posttrain.stage.errors import UserError

NAMES = [
    "llama",
    "llama-gqa-tied",
    "llama-mqa-rope3",
    "llama-yarn",
    "qwen2",
    "mistral-window",
    "gpt-neox",
]
LEAN = {"llama", "llama-gqa-tied", "llama-mqa-rope3", "qwen2"}


def trainer_logprobs(model, prompt, sample, temperature):
    ids = torch.tensor([prompt.token_ids + sample.token_ids])
    wanted = torch.arange(ids.shape[1])[None] >= len(prompt.token_ids)
    with torch.no_grad():
        found = token_logprobs(model, ids, wanted_BT=wanted, temperature=temperature)
    return found.logprobs_BT[0, len(prompt.token_ids) :]


@pytest.mark.parametrize("name", NAMES)
def test_the_llama_decoder_is_taken_where_it_is_exact(name, models):
    assert can_decode(models[name]) == (name in LEAN)


def test_an_adapter_or_another_precision_is_not_for_the_llama_decoder(models):
    wrapped = copy.deepcopy(models["llama"])
    attention = wrapped.model.layers[1].self_attn
    attention.q_proj = torch.nn.Sequential(attention.q_proj)
    assert not can_decode(wrapped)
    assert not can_decode(copy.deepcopy(models["llama"]).bfloat16())


def test_a_model_whose_modules_are_watched_is_called_itself(models):
    watched = copy.deepcopy(models["llama"])
    watched.model.layers[0].mlp.register_forward_hook(lambda *_: None)
    assert not can_decode(watched)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", ["llama", "gpt-neox"])
def test_a_policy_of_broken_weights_is_refused_in_one_sentence(
    name, temperature, models, prompts, tokenizer
):
    broken = copy.deepcopy(models[name])
    with torch.no_grad():
        broken.get_output_embeddings().weight[7] = torch.nan
    engine = TorchRolloutEngine(broken, tokenizer)
    with pytest.raises(UserError, match="logits are not finite, so nothing can be drawn"):
        engine.sample(prompts, SamplingParams(max_tokens=4, temperature=temperature))


@pytest.mark.parametrize("name", NAMES)
def test_greedy_equals_generate(name, models, prompts, tokenizer):
    model = models[name]
    engine = TorchRolloutEngine(model, tokenizer, batch_size=4)
    samples = engine.sample(prompts, SamplingParams(max_tokens=24, temperature=0.0))
    for prompt, sample in zip(prompts, samples, strict=True):
        ids = torch.tensor([prompt.token_ids])
        expected = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=24,
            pad_token_id=0,
        )
        assert list(sample.token_ids) == expected[0, len(prompt.token_ids) :].tolist()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_equal_the_trainers(name, temperature, models, prompts, tokenizer):
    engine = TorchRolloutEngine(models[name], tokenizer)
    params = SamplingParams(max_tokens=24, temperature=temperature, num_samples=3, top_p=0.9)
    samples = engine.sample(prompts, params)
    by_id = {prompt.id: prompt for prompt in prompts}
    for sample in samples:
        expected = trainer_logprobs(models[name], by_id[sample.prompt_id], sample, temperature)
        torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_prompts_of_any_length_go_on_after_others_were_dropped(name, models, tokenizer):
    """Many end tokens, so that prompts finish at all times; the last ones pass 25 tokens."""
    model = copy.deepcopy(models[name])
    model.generation_config.eos_token_id = list(range(2, 12))
    prompts = [Prompt(f"q{i}", tuple(range(20, 22 + i % 12))) for i in range(36)]
    samples = TorchRolloutEngine(model, tokenizer).sample(
        prompts, SamplingParams(max_tokens=40, num_samples=2)
    )
    lengths = [len(sample.token_ids) for sample in samples]
    assert sum(length < 10 for length in lengths) > 10
    assert max(lengths) > 30
    for sample in samples:
        prompt = prompts[int(sample.prompt_id[1:])]
        expected = trainer_logprobs(model, prompt, sample, 1.0)
        torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_new_weights_are_seen_at_once(name, models, prompts, tokenizer):
    model = copy.deepcopy(models[name]).train()
    engine = TorchRolloutEngine(model, tokenizer)
    params = SamplingParams(max_tokens=8)
    before = engine.sample(prompts, params)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.5)
    after = engine.sample(prompts, params)
    assert model.training
    for prompt, old, new in zip(prompts, before, after, strict=True):
        expected = trainer_logprobs(model, prompt, new, 1.0)
        torch.testing.assert_close(torch.tensor(new.logprobs), expected, atol=1e-4, rtol=0)
        stale = trainer_logprobs(model, prompt, old, 1.0)
        assert not torch.allclose(torch.tensor(old.logprobs), stale, atol=1e-2)


def test_every_configured_end_token_ends(models, prompts, tokenizer):
    model = copy.deepcopy(models["llama"])
    free = TorchRolloutEngine(model, tokenizer).sample(prompts[:1], SamplingParams(max_tokens=8))[0]
    model.generation_config.eos_token_id = [2, free.token_ids[3]]
    cut = TorchRolloutEngine(model, tokenizer).sample(prompts[:1], SamplingParams(max_tokens=8))[0]
    first = free.token_ids.index(free.token_ids[3])
    assert cut.token_ids == free.token_ids[: first + 1]


@pytest.mark.slow
def test_first_tokens_are_as_frequent_as_the_policy_says(models, tokenizer):
    model, prompt = models["llama"], Prompt("p", (5, 6, 7))
    params = SamplingParams(max_tokens=1, num_samples=20_000)
    samples = TorchRolloutEngine(model, tokenizer).sample([prompt], params)
    drawn = torch.bincount(
        torch.tensor([s.token_ids[0] for s in samples]), minlength=model.config.vocab_size
    )
    with torch.no_grad():
        expected = model(torch.tensor([prompt.token_ids])).logits[0, -1].softmax(-1)
    # Five standard deviations of each count: fails by chance about once in 6000 seeds.
    spread = (20_000 * expected * (1 - expected)).sqrt()
    assert ((drawn - 20_000 * expected).abs() <= 5 * spread + 3).all()


def test_a_groups_bits_do_not_depend_on_how_many_others_there_are(models, prompts, tokenizer):
    """Actors that share the work must draw what one process draws, log-probabilities included."""
    engine = TorchRolloutEngine(models["llama-gqa-tied"], tokenizer)
    alike = [Prompt(f"{i}", prompts[0].token_ids[:-1] + (10 + i,)) for i in range(32)]
    params = SamplingParams(max_tokens=12, num_samples=8, seed=7)
    together = engine.sample(alike, params)
    assert engine.sample(alike[:16], params) + engine.sample(alike[16:], params) == together


def test_a_batch_is_no_larger_than_what_the_processors_cache_holds(
    models, prompts, tokenizer, monkeypatch
):
    """Two layers of keys and values of 4 heads of 8 floats, 20 + 12 positions: 16 KiB a row."""
    engine, params = (
        TorchRolloutEngine(models["llama"], tokenizer),
        SamplingParams(12, num_samples=2),
    )
    expected = engine.sample(prompts, params)
    read, seen = LlamaDecoder.prefill, []

    def prefill(self, ids_PS, *given, group, **options):
        seen.append(len(ids_PS) * group)
        return read(self, ids_PS, *given, group=group, **options)

    monkeypatch.setattr(LlamaDecoder, "prefill", prefill)
    monkeypatch.setattr(llama, "FEWEST", 2)
    for rows, batches in ((5, [4, 4, 4]), (8, [8, 4]), (1, [2] * 6), (16, [12])):
        monkeypatch.setattr(llama, "IN_CACHE", rows * 2**14)
        seen.clear()
        found = engine.sample(prompts, params)
        assert seen == batches
        assert [s.token_ids for s in found] == [s.token_ids for s in expected]


@pytest.mark.parametrize("name", ["llama-gqa-tied", "qwen2"])
def test_prompts_that_share_nothing_are_read_in_portions(name, models, tokenizer, monkeypatch):
    """45 tokens at once: the activations of a whole batch would be many times its weights."""
    lengths = [20, 20, 20, 20, 7, 7, 9, 50, 3, 20]
    prompts = [Prompt(f"q{i}", tuple(range(20, 20 + n))) for i, n in enumerate(lengths)]
    engine, params = TorchRolloutEngine(models[name], tokenizer), SamplingParams(6, num_samples=1)
    whole = engine.sample(prompts, params)
    project, seen = llama.LlamaWeights.project, []

    def counted(self, x, layer, **given):
        if "out" not in given:
            seen.append(len(x))
        return project(self, x, layer, **given)

    monkeypatch.setattr(llama, "_PORTION", 45)
    monkeypatch.setattr(llama.LlamaWeights, "project", counted)
    found = engine.sample(prompts, params)
    # By hand, of the prompts from short to long: 3, 7, 7 and 9; twice two of 20; 20; 50.
    assert sorted(set(seen)) == [20, 36, 40, 50]
    assert [s.token_ids for s in found] == [s.token_ids for s in whole]
    for sample, prompt in zip(found, prompts, strict=True):
        expected = trainer_logprobs(models[name], prompt, sample, 1.0)
        torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=1e-4, rtol=0)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
def test_another_engine_that_is_not_installed_is_said_with_what_installs_it(models, tokenizer):
    policy = Policy(models["llama"], tokenizer)
    said = "engine vllm is not installed; run: pip install --no-deps --requirement"
    # It sets variables of the environment for a library that is not there.
    with (
        mock.patch.dict(os.environ),
        pytest.raises(UserError, match=said),
        VllmEngine().open(policy, batch_size=1),
    ):
        pass
