"""One contract, every engine."""

import pytest
import torch
from transformers import GenerationConfig

from posttrain.backends.endpoint.cache import RequestCache
from posttrain.backends.endpoint.client import Client
from posttrain.learning.models.load import Policy
from posttrain.learning.rollouts.engines.base import FinishReason, Prompt, SamplingParams
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.rollouts.engines.kinds.vllm import VllmEngine
from posttrain.learning.rollouts.engines.server import ServerRolloutEngine
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine
from posttrain.stage.errors import UserError
from tests.scripted import FakeEngine


def script(prompt, index, seed):
    return f"{prompt.id} {index} {seed}: " + "2 + 3 = 5 " * (index % 3)


ENGINES = [
    ("fake", ""),
    ("torch", "llama"),
    ("torch", "qwen2"),
    ("torch", "mistral-window"),
    pytest.param(("vllm", "llama"), marks=pytest.mark.engines),
    pytest.param(("vllm", "qwen2"), marks=pytest.mark.engines),
    pytest.param(("server", "llama"), marks=pytest.mark.engines),
]


# What instruction-tuned models bring along, and would quietly change what is drawn.
OPINIONS = {
    "do_sample": True, "temperature": 0.1, "top_k": 2, "top_p": 0.5, "repetition_penalty": 3.0,
    "eos_token_id": [2], "pad_token_id": 0,
}  # fmt: skip


@pytest.fixture(scope="module", params=ENGINES, ids=lambda engine: "-".join(engine))
def rollout_engine(request, tokenizer, models, wide_model, tmp_path_factory):
    engine, name = request.param
    if engine == "server":
        # Started by the first that asks for it: only where vLLM is.
        endpoint = request.getfixturevalue("vllm_server")
        cache = RequestCache(tmp_path_factory.mktemp("asked") / "requests.db")
        yield ServerRolloutEngine(Client(endpoint, cache), tokenizer, policy_version=41)
    elif engine == "fake":
        yield FakeEngine(tokenizer, script, context_length=64)
    elif engine == "torch":
        yield TorchRolloutEngine(models[name], tokenizer, batch_size=8)
    else:
        config = VllmEngine(max_num_seqs=16, kv_cache_gib=0.1)
        model = wide_model(name)
        # All that an engine reads is written as it starts; the tests then see whether it obeys.
        plain, model.generation_config = model.generation_config, GenerationConfig(**OPINIONS)
        with open_engine(config, Policy(model, tokenizer)) as rollout_engine:
            model.generation_config = plain
            yield rollout_engine


@pytest.fixture
def policy_engine(rollout_engine):
    """An engine that has a policy."""
    if isinstance(rollout_engine, FakeEngine):
        pytest.skip("a scripted engine has no policy")
    return rollout_engine


@pytest.fixture
def model(policy_engine, wide_model):
    """The policy, as transformers has it; a server's is the one that it was started with."""
    if isinstance(policy_engine, ServerRolloutEngine):
        return wide_model("llama")
    return policy_engine.model


def test_greedy_equals_generate(policy_engine, model, prompts):
    params = SamplingParams(max_tokens=24, temperature=0.0)
    for prompt, sample in zip(prompts, policy_engine.sample(prompts, params), strict=True):
        ids = torch.tensor([prompt.token_ids])
        expected = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=24,
            pad_token_id=0,
        )
        assert list(sample.token_ids) == expected[0, len(prompt.token_ids) :].tolist()


@pytest.mark.parametrize("cut", [{}, {"top_p": 0.8}, {"top_k": 5}])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_the_trainers(
    policy_engine, model, prompts, trainer_logprobs, temperature, cut
):
    if isinstance(policy_engine, ServerRolloutEngine) and temperature != 1.0:
        pytest.skip("a server reports log-probabilities at temperature 1, and is refused another")
    params = SamplingParams(max_tokens=24, temperature=temperature, num_samples=3, **cut)
    by_id = {prompt.id: prompt for prompt in prompts}
    for sample in policy_engine.sample(prompts, params):
        expected = trainer_logprobs(model, by_id[sample.prompt_id], sample, temperature)
        torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=1e-3, rtol=0)


def test_a_completion_goes_on_from_given_tokens(policy_engine, prompts):
    """Tokens of a completion at the end of a prompt are what the engine starts from."""
    params = SamplingParams(max_tokens=16, temperature=0.0)
    whole = policy_engine.sample(prompts, params)
    given = [min(6, len(sample.token_ids) - 1) for sample in whole]
    begun = [
        Prompt(prompt.id, prompt.token_ids + sample.token_ids[:n])
        for prompt, sample, n in zip(prompts, whole, given, strict=True)
    ]
    assert max(given) == 6
    for before, after, n in zip(whole, policy_engine.sample(begun, params), given, strict=True):
        assert after.token_ids[: len(before.token_ids) - n] == before.token_ids[n:]
        torch.testing.assert_close(
            torch.tensor(after.logprobs[: len(before.token_ids) - n]),
            torch.tensor(before.logprobs[n:]),
            atol=1e-4,
            rtol=0,
        )


def test_samples_come_back_prompt_by_prompt_and_numbered(rollout_engine, prompts):
    samples = rollout_engine.sample(prompts, SamplingParams(max_tokens=6, num_samples=3))
    expected = [(prompt.id, index) for prompt in prompts for index in range(3)]
    assert [(sample.prompt_id, sample.index) for sample in samples] == expected


def test_tokens_text_logprobs_and_reason_agree(rollout_engine, prompts, tokenizer):
    samples = rollout_engine.sample(prompts, SamplingParams(max_tokens=24, num_samples=8))
    for sample in samples:
        assert 1 <= len(sample.token_ids) <= 24
        assert len(sample.logprobs) == len(sample.token_ids)
        assert all(value < 0 for value in sample.logprobs)
        assert sample.text == tokenizer.decode(sample.token_ids, skip_special_tokens=True)
        ended = sample.token_ids[-1] == tokenizer.eos_token_id
        assert (sample.finish_reason is FinishReason.STOP) == ended
        assert ended or len(sample.token_ids) == 24
        assert tokenizer.eos_token_id not in sample.token_ids[:-1]
    assert {sample.finish_reason for sample in samples} == {FinishReason.STOP, FinishReason.LENGTH}


def test_any_of_several_end_tokens_ends_a_sample_and_is_no_text(
    policy_engine, prompts, tokenizer, monkeypatch
):
    if isinstance(policy_engine, ServerRolloutEngine):
        pytest.skip("a server reads its generation config as it starts")
    params = SamplingParams(max_tokens=24, num_samples=4)
    free = policy_engine.sample(prompts, params)
    drawn = [token for sample in free for token in sample.token_ids[1:] if token > 2]
    other = max(sorted(set(drawn)), key=drawn.count)
    opinions = GenerationConfig(**{**OPINIONS, "eos_token_id": [2, other]})
    monkeypatch.setattr(policy_engine.model, "generation_config", opinions)
    num_other = 0
    for before, after in zip(free, policy_engine.sample(prompts, params), strict=True):
        ids = list(before.token_ids)
        at = next((place for place, token in enumerate(ids) if token in (2, other)), None)
        assert list(after.token_ids) == ids[: None if at is None else at + 1]
        assert (after.finish_reason is FinishReason.STOP) == (at is not None)
        text = after.token_ids if at is None else after.token_ids[:-1]
        assert after.text == tokenizer.decode(text, skip_special_tokens=True)
        num_other += after.token_ids[-1] == other
    assert num_other >= 3


def test_the_same_call_twice_gives_the_same_samples(rollout_engine, prompts):
    params = SamplingParams(max_tokens=8, num_samples=2, seed=5)
    assert rollout_engine.sample(prompts, params) == rollout_engine.sample(prompts, params)


def test_seed_and_index_change_what_is_drawn(rollout_engine, prompts):
    def texts(seed):
        params = SamplingParams(max_tokens=8, num_samples=4, seed=seed)
        return [sample.token_ids for sample in rollout_engine.sample(prompts, params)]

    assert texts(0) != texts(1)
    assert len(set(texts(0)[:4])) == 4


def test_a_sample_does_not_depend_on_the_rest_of_the_batch(rollout_engine, prompts, same_draws):
    params = SamplingParams(max_tokens=8, num_samples=3, seed=1)
    together = rollout_engine.sample(prompts, params)
    alone = [sample for prompt in prompts for sample in rollout_engine.sample([prompt], params)]
    fewer = rollout_engine.sample(prompts, SamplingParams(max_tokens=8, num_samples=2, seed=1))
    first_two = [sample for sample in together if sample.index < 2]
    if isinstance(rollout_engine, FakeEngine | ServerRolloutEngine):
        # No policy to ask, or random numbers of the server's own: the tokens themselves.
        assert [s.token_ids for s in alone] == [s.token_ids for s in together]
        assert [s.token_ids for s in fewer] == [s.token_ids for s in first_two]
    else:
        same_draws(rollout_engine.model, prompts, params, alone, together)
        same_draws(rollout_engine.model, prompts, params, fewer, first_two)


def test_greedy_needs_no_seed_and_does_not_vary(rollout_engine, prompts):
    def greedy(seed):
        params = SamplingParams(max_tokens=8, temperature=0.0, num_samples=2, seed=seed)
        return [(s.prompt_id, s.token_ids) for s in rollout_engine.sample(prompts, params)]

    assert greedy(0) == greedy(1)
    assert greedy(0)[::2] == greedy(0)[1::2]


def test_stop_string_ends_the_text_before_it(rollout_engine, prompts):
    free = rollout_engine.sample(prompts, SamplingParams(max_tokens=20, num_samples=4))
    # A lone byte of a longer character reads differently once the rest is there: take ASCII.
    letters = [char for sample in free for char in sample.text[1:] if char.isascii()]
    stop = max(sorted(set(letters)), key=letters.count)
    assert sum(stop in sample.text for sample in free) >= 3
    cut = rollout_engine.sample(prompts, SamplingParams(max_tokens=20, num_samples=4, stop=(stop,)))
    for before, after in zip(free, cut, strict=True):
        assert after.text == before.text.split(stop)[0]
        if stop in before.text:
            assert after.finish_reason is FinishReason.STOP
            assert len(after.token_ids) <= len(before.token_ids)
        else:
            assert after.token_ids == before.token_ids
        assert after.token_ids == before.token_ids[: len(after.token_ids)]


def test_completion_ends_at_the_end_of_the_context(rollout_engine):
    long, short = Prompt("long", tuple(range(3, 65))), Prompt("short", (5, 6, 7))
    params = SamplingParams(max_tokens=40, num_samples=4)
    samples = rollout_engine.sample([long, short], params)
    assert all(len(sample.token_ids) <= 2 for sample in samples[:4])
    cut = [sample for sample in samples[:4] if sample.finish_reason is FinishReason.LENGTH]
    assert cut
    assert all(len(sample.token_ids) == 2 for sample in cut)


def test_bad_prompts_are_refused_by_name(rollout_engine):
    params = SamplingParams(max_tokens=4)
    with pytest.raises(UserError, match="prompt 'hollow' has no tokens"):
        rollout_engine.sample([Prompt("hollow", ())], params)
    with pytest.raises(UserError, match="prompt 'epic' has 64 tokens, but the model's context is"):
        rollout_engine.sample([Prompt("epic", (5,) * 64)], params)
    with pytest.raises(UserError, match="prompt 'twin' is given twice"):
        rollout_engine.sample([Prompt("twin", (5,)), Prompt("twin", (6,))], params)


def test_policy_version_is_stamped(rollout_engine, prompts):
    rollout_engine.update(41)
    samples = rollout_engine.sample(prompts[:1], SamplingParams(max_tokens=2, num_samples=2))
    assert [sample.policy_version for sample in samples] == [41, 41]


def test_no_prompts_no_samples(rollout_engine):
    assert rollout_engine.sample([], SamplingParams(max_tokens=4)) == []


@pytest.mark.parametrize(
    "bad",
    [
        {"max_tokens": 0},
        {"num_samples": 0},
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"top_k": -1},
        {"stop": ("",)},
    ],
)
def test_nonsense_parameters_are_refused(bad):
    with pytest.raises(ValueError, match=r"must|empty"):
        SamplingParams(**{"max_tokens": 4, **bad})
