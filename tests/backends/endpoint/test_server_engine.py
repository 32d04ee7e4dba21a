"""The engine over a server, against a server that answers with a model of the tests' own."""

import hashlib

import pytest

from posttrain.backends.endpoint.client import open_client
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rollouts.engines.base import FinishReason, Prompt, SamplingParams
from posttrain.learning.rollouts.engines.server import ServerRolloutEngine
from posttrain.stage.errors import UserError


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["2 + 3 = 5\n#### 5"], vocab_size=270)


@pytest.fixture
def engine(server, tokenizer):
    """Completions are a hash of prompt and seed: as random, and as repeatable, as a real server."""

    def complete(body):
        asked = repr((body["prompt"], body.get("seed"))).encode()
        ids = [3 + byte for byte in hashlib.sha256(asked).digest()[:8]]
        ended = ids[0] % 2 == 0
        ids = ids[: body["max_tokens"]] if not ended else [*ids[: body["max_tokens"] - 1], 2]
        return {
            "token_ids": ids,
            "logprobs": {"token_logprobs": [-0.5 - index for index in range(len(ids))]},
            "finish_reason": "stop" if ended else "length",
            "text": "unused",
        }

    server.complete = complete
    return ServerRolloutEngine(open_client(server.endpoint()), tokenizer, policy_version=3)


PROMPTS = [Prompt(f"p{i}", tuple(range(5, 8 + i))) for i in range(4)]


def test_ids_logprobs_reason_version_and_order(engine, tokenizer, server):
    samples = engine.sample(PROMPTS, SamplingParams(max_tokens=5, num_samples=3))
    expected = [(prompt.id, index) for prompt in PROMPTS for index in range(3)]
    assert [(sample.prompt_id, sample.index) for sample in samples] == expected
    for sample in samples:
        ended = sample.token_ids[-1] == 2
        assert sample.finish_reason is (FinishReason.STOP if ended else FinishReason.LENGTH)
        assert sample.logprobs == tuple(-0.5 - index for index in range(len(sample.token_ids)))
        assert sample.text == tokenizer.decode(sample.token_ids, skip_special_tokens=True)
        assert sample.policy_version == 3
    assert len({sample.token_ids for sample in samples}) == 12
    assert all(body["return_token_ids"] for body in server.requests)


def test_a_sample_depends_on_seed_prompt_and_index_alone(engine):
    params = SamplingParams(max_tokens=5, num_samples=3, seed=4)
    together = engine.sample(PROMPTS, params)
    alone = [s for prompt in reversed(PROMPTS) for s in engine.sample([prompt], params)]
    assert sorted(alone, key=lambda s: (s.prompt_id, s.index)) == together
    fewer = engine.sample(PROMPTS, SamplingParams(max_tokens=5, num_samples=2, seed=4))
    assert fewer == [sample for sample in together if sample.index < 2]


def test_greedy_is_asked_once_for_all_samples(engine, server):
    params = SamplingParams(max_tokens=5, num_samples=4, temperature=0.0)
    samples = engine.sample(PROMPTS[:1], params)
    assert len(server.requests) == 1
    assert len({sample.token_ids for sample in samples}) == 1


def test_room_stop_and_cuts_are_passed_on(engine, server):
    long = Prompt("long", (5,) * 60)
    params = SamplingParams(max_tokens=9, stop=("#",), top_p=0.9, top_k=7)
    engine.sample([long], params)
    body = server.requests[0]
    assert (body["max_tokens"], body["stop"], body["top_p"], body["top_k"]) == (4, ["#"], 0.9, 7)


def test_bad_prompts_are_refused_by_name(engine, server):
    with pytest.raises(UserError, match="prompt 'epic' has 64 tokens, but the model's context is"):
        engine.sample([Prompt("epic", (5,) * 64)], SamplingParams(max_tokens=4))
    with pytest.raises(UserError, match="prompt 'hollow' has no tokens"):
        engine.sample([Prompt("hollow", ())], SamplingParams(max_tokens=4))
    assert not server.requests
    assert engine.sample([], SamplingParams(max_tokens=4)) == []


def test_what_the_server_cannot_do_is_refused(engine, server, tokenizer):
    engine.update(3)
    with pytest.raises(UserError, match="cannot take over version 4; where the policy learns"):
        engine.update(4)
    with pytest.raises(UserError, match="the temperature is 0.7; sample at 1, or start it with"):
        engine.sample(PROMPTS, SamplingParams(max_tokens=4, temperature=0.7))
    processed = ServerRolloutEngine(engine.client, tokenizer, processed_logprobs=True)
    processed.sample(PROMPTS, SamplingParams(max_tokens=4, temperature=0.7))
    with pytest.raises(UserError, match="after top_k and top_p"):
        processed.sample(PROMPTS, SamplingParams(max_tokens=4, top_k=3))


def test_a_server_without_token_ids_or_context_is_refused(engine, server, tokenizer):
    server.complete = lambda _body: {"text": "five", "finish_reason": "stop"}
    engine.client.endpoint = server.endpoint(retries=0)
    with pytest.raises(UserError, match=r"no token_ids; serve with vLLM 0.11 or newer"):
        engine.sample(PROMPTS, SamplingParams(max_tokens=4))
    server.models = [{"id": "tiny"}]
    other = ServerRolloutEngine(open_client(server.endpoint(concurrency=2)), tokenizer)
    with pytest.raises(UserError, match="how long the context of 'tiny' is; give context_length"):
        other.sample(PROMPTS, SamplingParams(max_tokens=4))
