"""Faults of an endpoint: what is repeated, what is refused, what is paid for, what is said."""

import logging
import socket

import pytest

from posttrain.backends.endpoint.chat import Question, reply_to
from posttrain.backends.endpoint.client import open_client
from posttrain.backends.endpoint.config import Endpoint
from posttrain.stage.errors import UserError


def ask(endpoint, *texts):
    return reply_to(open_client(endpoint), [Question(text) for text in texts])


def refusal(endpoint, *texts):
    with pytest.raises(UserError) as caught:
        ask(endpoint, *(texts or ("hello",)))
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert caught.value.__cause__ is None
    return sentence


def test_answers_come_in_order_and_requests_say_what_was_meant(server):
    questions = [
        Question("one", system="be brief", temperature=0.5, max_tokens=7, seed=3),
        Question("two"),
    ]
    assert reply_to(open_client(server.endpoint()), questions) == ["echo one", "echo two"]
    first = next(body for body in server.requests if len(body["messages"]) == 2)
    assert first == {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "one"},
        ],
        "temperature": 0.5,
        "max_tokens": 7,
        "seed": 3,
    }


@pytest.mark.parametrize(
    "fault",
    [
        (429, {"error": {"message": "slow down"}}),
        (500, "oops"),
        (503, {"detail": "starting"}),
        "dead",
        "garbage",
        "not json",
    ],
)
def test_a_passing_fault_is_repeated(server, fault):
    server.faults = [fault, fault]
    assert ask(server.endpoint(), "hello") == ["echo hello"]
    assert len(server.requests) == 3


def test_a_slow_answer_is_given_up_and_asked_for_again(server):
    server.faults = ["slow"]
    endpoint = server.endpoint().model_copy(update={"timeout_s": 0.2})
    assert ask(endpoint, "hello") == ["echo hello"]
    assert len(server.requests) == 2


def test_no_more_in_flight_than_allowed_and_no_fewer(server):
    server.delay, server.together = 0.05, 3
    ask(server.endpoint(concurrency=3), *(f"q{i}" for i in range(9)))
    assert server.most_running == 3


def test_what_was_answered_is_never_asked_again(server):
    endpoint = server.endpoint()
    first = ask(endpoint, "a", "b", "a")
    assert first == ["echo a", "echo b", "echo a"]
    assert len(server.requests) == 2
    open_client.__globals__["_client"].cache_clear()
    assert ask(endpoint, "b", "a") == ["echo b", "echo a"]
    assert len(server.requests) == 2
    reply_to(open_client(endpoint), [Question("a", draw=1), Question("a", temperature=0.1)])
    assert len(server.requests) == 4


def test_everything_kept_needs_no_server(server):
    endpoint = server.endpoint()
    ask(endpoint, "a")
    server.close()
    open_client.__globals__["_client"].cache_clear()
    assert ask(endpoint, "a") == ["echo a"]


def test_a_failed_run_keeps_what_it_paid_for(server):
    """One at a time: the third is refused, so the first two are kept and the fourth never sent."""
    endpoint = server.endpoint(concurrency=1)
    server.faults = [None, None, (400, {"error": {"message": "too long"}})]
    sentence = refusal(endpoint, "a", "b", "c", "d")
    assert "refused a request (400: too long)" in sentence
    assert [body["messages"][0]["content"] for body in server.requests] == ["a", "b", "c"]
    assert ask(endpoint, "a", "b", "c", "d") == ["echo a", "echo b", "echo c", "echo d"]
    assert len(server.requests) == 5


def test_a_fault_that_stays_ends_with_one_sentence(server):
    server.faults = [(500, "oops")] * 9
    sentence = refusal(server.endpoint(retries=2))
    assert f"{server.url}/chat/completions answered 500 (oops)" in sentence
    assert "3 attempts" in sentence
    assert len(server.requests) == 3


def test_the_refusal_is_said_not_who_was_waiting_for_another_try(server, monkeypatch):
    """One waits a minute after a 429 while the other is refused: that ends the wait."""
    monkeypatch.setattr("posttrain.backends.endpoint.client.FIRST_WAIT_S", 60)
    server.delay = 0.1
    server.faults = [(429, "later"), (400, {"error": {"message": "too long"}})]
    assert "refused a request (400: too long)" in refusal(server.endpoint(), "a", "b")


def test_a_used_up_quota_is_not_asked_for_again(server):
    broke = {"error": {"message": "pay first", "code": "insufficient_quota"}}
    server.faults = [(429, broke)] * 9
    assert "refused a request (429: insufficient_quota pay first)" in refusal(server.endpoint())
    assert len(server.requests) == 1


def test_a_slow_endpoint_is_named(server):
    server.faults = ["slow"] * 9
    endpoint = server.endpoint(retries=1).model_copy(update={"timeout_s": 0.1})
    assert "gave no answer for 0.1 s; raise timeout_s, or lower concurrency" in refusal(endpoint)


def test_a_dead_endpoint_is_said_at_once():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
    sentence = refusal(Endpoint(base_url=url, model="tiny"))
    assert sentence.startswith(f"{url} cannot be reached")
    assert sentence.endswith("start the server, or correct base_url")


def test_an_unknown_model_is_said_before_anything_is_asked(server):
    endpoint = server.endpoint().model_copy(update={"model": "tyni"})
    assert refusal(endpoint) == f"{server.url} has no model 'tyni'; did you mean 'tiny'?"
    assert not server.requests


def test_the_key_goes_out_and_nowhere_else(server, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    server.key = "sk-right-0123456789"
    monkeypatch.setenv("TEACHER_KEY", server.key)
    endpoint = server.endpoint(api_key_env="TEACHER_KEY")
    assert ask(endpoint, "hello") == ["echo hello"]
    assert server.headers[0]["Authorization"] == f"Bearer {server.key}"
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert server.key.encode() not in kept
    assert b"echo hello" in kept
    assert server.key not in caplog.text
    assert server.key not in endpoint.model_dump_json()


def test_a_wrong_key_is_named_by_its_variable_only(server, monkeypatch):
    server.key = "sk-right-0123456789"
    monkeypatch.setenv("TEACHER_KEY", "sk-wrong-9876543210")
    sentence = refusal(server.endpoint(api_key_env="TEACHER_KEY"))
    assert "refused the key in TEACHER_KEY; correct that variable (401: bad_key" in sentence
    assert "Incorrect API key provided: ***" in sentence
    assert "sk-wrong" not in sentence
    assert "name the environment variable that holds it" in refusal(server.endpoint())
    assert not server.requests


@pytest.mark.parametrize("value", ["", "two words", "sch\u00f6n", "line\nbreak"])
def test_what_cannot_be_a_key_is_refused_unseen(server, monkeypatch, value):
    monkeypatch.setenv("TEACHER_KEY", value)
    sentence = refusal(server.endpoint(api_key_env="TEACHER_KEY"))
    assert "the environment variable TEACHER_KEY" in sentence
    assert not value or value not in sentence


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"base_url": "localhost:8000"}, "must be like"),
        ({"base_url": "https://me:secret@host/v1"}, "an address alone"),
        ({"base_url": "https://host/v1?key=secret"}, "an address alone"),
        ({"api_key_env": "sk-123"}, "name of an environment variable"),
    ],
)
def test_a_recipe_cannot_hold_a_secret(fields, wrong):
    values = {"base_url": "http://host/v1", "model": "tiny", **fields}
    with pytest.raises(UserError, match=wrong) as caught:
        Endpoint.parse(values, where="synthesize.teacher.endpoint")
    assert "secret" not in str(caught.value)
    assert "sk-123" not in str(caught.value)


def test_options_add_and_take_out_fields(server):
    endpoint = server.endpoint(send_seed=False, options={"max_tokens": None, "top_p": 0.9})
    ask(endpoint, "hello")
    assert server.requests[0].keys() == {"model", "messages", "temperature", "top_p"}
