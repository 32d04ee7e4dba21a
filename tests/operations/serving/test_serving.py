"""A served policy, asked by the real client of OpenAI's API."""

import json

import httpx
import openai
import pytest
import torch

from posttrain.backends.endpoint.client import open_client
from posttrain.backends.endpoint.config import Endpoint
from posttrain.data.contexts import PromptContext, PromptInContext
from posttrain.data.templates import encode_prompts
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.engines.server import ServerRolloutEngine
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine

ASKED = [{"role": "user", "content": "2 + 3 ="}]
IDS = {"return_token_ids": True}


@pytest.fixture
def engine(served):
    return TorchRolloutEngine(served.policy.model, served.policy.tokenizer)


def chat(client, **options):
    return client.chat.completions.create(model="tiny", messages=ASKED, **options)


def drawn(engine, prompt, **options):
    ids = encode_prompts(engine.tokenizer, [prompt])[0]
    return engine.sample([Prompt("0", tuple(ids))], SamplingParams(**options))


def test_it_says_which_model_is_served_and_how_long_its_context_is(client):
    (card,) = client.models.list()
    assert (card.id, card.max_model_len, card.weights_sha256) == ("tiny", 128, "f00d" * 16)
    assert client.models.retrieve("tiny") == card


def test_greedy_answers_are_those_of_the_torch_engine_token_by_token(client, engine):
    (sample,) = drawn(engine, "2 + 3 =", max_tokens=24, temperature=0.0)
    said = chat(client, max_tokens=24, temperature=0, logprobs=True, extra_body=IDS)
    (choice,) = said.choices
    assert choice.token_ids == list(sample.token_ids)
    assert (choice.message.content, choice.finish_reason) == (sample.text, sample.finish_reason)
    told = [each.logprob for each in choice.logprobs.content]
    assert told == pytest.approx(sample.logprobs, abs=1e-4)
    read = len(said.prompt_token_ids)
    assert said.prompt_token_ids == encode_prompts(engine.tokenizer, ["2 + 3 ="])[0]
    assert (said.usage.prompt_tokens, said.usage.completion_tokens) == (read, len(sample.token_ids))
    assert said.system_fingerprint == "f00d" * 4


def test_a_seed_draws_the_samples_of_the_torch_engine(client, engine):
    samples = drawn(
        engine, "2 + 3 =", max_tokens=12, temperature=0.7, top_p=0.9, num_samples=3, seed=5
    )
    said = chat(client, max_tokens=12, temperature=0.7, top_p=0.9, n=3, seed=5, extra_body=IDS)
    assert [each.token_ids for each in said.choices] == [list(each.token_ids) for each in samples]
    assert len({each.text for each in samples}) == 3
    other = chat(client, max_tokens=12, temperature=0.7, top_p=0.9, n=3, seed=6, extra_body=IDS)
    assert [each.token_ids for each in other.choices] != [each.token_ids for each in said.choices]


def test_without_a_seed_two_answers_differ(client):
    first, second = (chat(client, max_tokens=24).choices[0].message.content for _ in range(2))
    assert first != second


def test_messages_are_written_as_stages_write_them(client, engine):
    said = client.chat.completions.create(
        model="tiny",
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "7 - 2 ="},
            {"role": "assistant", "content": "5"},
            {"role": "user", "content": [{"type": "text", "text": "12 * 4 ="}]},
        ],
        max_tokens=1,
        extra_body=IDS,
    )
    turns = [{"role": "user", "content": "7 - 2 ="}, {"role": "assistant", "content": "5"}]
    context = PromptContext.parse({"system": "Be brief.", "turns": turns}, where="test")
    (ids,) = encode_prompts(engine.tokenizer, [PromptInContext("12 * 4 =", context)])
    assert said.prompt_token_ids == ids


@pytest.mark.parametrize("options", [{"temperature": 0}, {"seed": 9}, {"seed": 9, "n": 3}])
def test_a_stream_is_the_answer_in_pieces(client, options):
    whole = chat(client, max_tokens=40, extra_body=IDS, **options)
    pieces = list(
        chat(
            client,
            max_tokens=40,
            stream=True,
            stream_options={"include_usage": True},
            extra_body=IDS,
            **options,
        )
    )
    assert pieces[-1].usage == whole.usage
    texts, ids, ends = {}, {}, {}
    for choice in (choice for piece in pieces for choice in piece.choices):
        texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
        ids.setdefault(choice.index, []).extend(
            choice.token_ids if choice.delta.role is None else []
        )
        ends[choice.index] = choice.finish_reason
    for choice in whole.choices:
        assert texts[choice.index] == choice.message.content
        assert ids[choice.index] == choice.token_ids
        assert ends[choice.index] == choice.finish_reason
    # More than the opening, one piece of everything, and the end.
    assert len(pieces) > 10


def test_a_stop_string_ends_an_answer_and_no_piece_of_it_is_told(client):
    whole = chat(client, max_tokens=40, seed=9).choices[0].message.content
    stop = whole[len(whole) // 2 :][:3]
    before = whole[: whole.index(stop)]
    said = chat(client, max_tokens=40, seed=9, stop=[stop]).choices[0]
    assert (said.message.content, said.finish_reason) == (before, "stop")
    streamed = chat(client, max_tokens=40, seed=9, stop=stop, stream=True)
    assert "".join(piece.choices[0].delta.content or "" for piece in streamed) == before


def test_likely_tokens_are_those_of_the_model(client, served):
    said = client.completions.create(
        model="tiny", prompt=[5, 6, 7], max_tokens=2, temperature=0, logprobs=3, extra_body=IDS
    )
    (choice,) = said.choices
    with torch.inference_mode():
        ids = torch.tensor([[5, 6, 7, *choice.token_ids]])
        logprobs = served.policy.model(input_ids=ids).logits[0].float().log_softmax(-1)
    best = logprobs[2].topk(3)
    spell = served.policy.tokenizer.decode
    pairs = [*zip(best.indices, best.values.tolist(), strict=True)]
    # Of two tokens that are spelled alike the likelier one is told.
    expected = {spell([token]): value for token, value in reversed(pairs)}
    assert choice.logprobs.top_logprobs[0] == pytest.approx(expected, abs=1e-5)
    # Greedy: what was drawn is the likeliest.
    assert choice.logprobs.token_logprobs[0] == pytest.approx(best.values[0].item(), abs=1e-5)


def test_a_prompt_can_be_scored_without_an_answer(client, served):
    said = client.completions.create(
        model="tiny", prompt=[[5, 6, 7], [8, 9]], max_tokens=0, echo=True, logprobs=0
    )
    first, second = said.choices
    with torch.inference_mode():
        logits = served.policy.model(input_ids=torch.tensor([[5, 6, 7]])).logits[0].float()
    expected = logits.log_softmax(-1)[[0, 1], [6, 7]].tolist()
    assert first.logprobs.token_logprobs[0] is None
    assert first.logprobs.token_logprobs[1:] == pytest.approx(expected, abs=1e-5)
    assert first.text == served.policy.tokenizer.decode([5, 6, 7])
    assert len(second.logprobs.tokens) == 2
    assert said.usage.completion_tokens == 0


def test_our_own_client_of_such_servers_gets_the_same_samples_from_it(address, served, engine):
    endpoint = Endpoint(base_url=f"{address}/v1", model="tiny")
    there = ServerRolloutEngine(open_client(endpoint), served.policy.tokenizer)
    prompts = [Prompt("a", (5, 6, 7)), Prompt("b", (8, 9))]
    params = SamplingParams(max_tokens=6, temperature=0.0)
    assert there.context_length == 128
    expected = [
        (each.token_ids, each.text, each.finish_reason) for each in engine.sample(prompts, params)
    ]
    found = there.sample(prompts, params)
    assert [(each.token_ids, each.text, each.finish_reason) for each in found] == expected


@pytest.mark.parametrize(
    ("asked", "param", "sentence"),
    [
        ({"temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"temprature": 1}, "temprature", "does not know it; leave it out"),
        ({"tools": [{"type": "function"}]}, "tools", "has none of it; leave it out, or serve"),
        ({"frequency_penalty": 0.5}, "frequency_penalty", "serve with vLLM"),
        ({"messages": []}, "messages", "at least 1 item"),
        ({"messages": [*ASKED, {"role": "assistant", "content": "5"}]}, "messages", "the user's"),
        ({"messages": [*ASKED, {"role": "system", "content": "x"}]}, "messages", "put it first"),
        ({"messages": [{"role": "user", "content": "5 + " * 200}]}, "prompt", "shorten it"),
        ({"stream": True, "logprobs": True, "top_logprobs": 2}, "stream", "whole answers"),
        ({"stop": [""]}, None, "an empty stop string"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_the_form_of_openai(address, asked, param, sentence):
    body = {"model": "tiny", "messages": ASKED, "max_tokens": 1} | asked
    answer = httpx.post(f"{address}/v1/chat/completions", json=body)
    assert answer.status_code == 400
    told = answer.json()["error"]
    assert (told["type"], told["param"]) == ("invalid_request_error", param)
    assert sentence in told["message"]


def test_neutral_values_of_what_is_not_done_are_taken(client):
    said = chat(client, max_tokens=1, presence_penalty=0.0, user="me", tools=[], metadata={})
    assert said.usage.completion_tokens == 1


def test_clients_raise_their_own_errors(client, address):
    with pytest.raises(openai.NotFoundError, match="'tiny' is served") as raised:
        client.completions.create(model="large", prompt="x")
    assert raised.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="there is no token 99999"):
        client.completions.create(model="tiny", prompt=[99999])
    assert (
        httpx.get(f"{address}/v1/embeddings").json()["error"]["message"].startswith("there is no")
    )
    broken = httpx.post(
        f"{address}/v1/completions", content="{", headers={"Content-Type": "application/json"}
    )
    assert (broken.status_code, broken.json()["error"]["message"]) == (400, "the body is not JSON")


def test_a_page_of_another_name_reads_nothing(address):
    answer = httpx.get(f"{address}/v1/models", headers={"Host": "evil.example"})
    assert answer.status_code == 400


def test_who_leaves_a_stream_is_drawn_for_no_longer_and_others_are_answered(client, lines):
    del lines[:]
    with chat(client, max_tokens=100, stream=True, seed=1) as stream:
        next(stream)
    said = chat(client, max_tokens=2, temperature=0)
    assert said.usage.completion_tokens <= 2
    assert json.dumps(lines).count("drawn in") == 1
