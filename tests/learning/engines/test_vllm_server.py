"""What is a server's own: a teacher's answers, and what is said of a wrong question."""

import pytest

from posttrain.backends.endpoint.cache import RequestCache
from posttrain.backends.endpoint.chat import Question, reply_to
from posttrain.backends.endpoint.client import Client
from posttrain.learning.rollouts.engines.base import SamplingParams
from posttrain.learning.rollouts.engines.server import ServerRolloutEngine
from posttrain.stage.errors import UserError

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]


@pytest.fixture
def client(vllm_server, tmp_path):
    return Client(vllm_server, RequestCache(tmp_path / "requests.db"))


def test_the_same_is_drawn_when_the_server_is_asked_again(client, tokenizer, prompts, tmp_path):
    """Another cache, so that it really is; and one prompt alone, as load must not matter."""
    params = SamplingParams(max_tokens=8, num_samples=3, seed=1)
    together = ServerRolloutEngine(client, tokenizer).sample(prompts, params)
    alone = Client(client.endpoint, RequestCache(tmp_path / "another.db"))
    again = ServerRolloutEngine(alone, tokenizer).sample(prompts[1:2], params)
    expected = [s for s in together if s.prompt_id == prompts[1].id]
    assert [s.token_ids for s in again] == [s.token_ids for s in expected]


def test_a_teachers_answers_come_once_and_stay(client):
    questions = [Question(f"{n} + 1 =", temperature=1.0, max_tokens=8, seed=n) for n in range(6)]
    replies = reply_to(client, questions)
    assert len(set(replies)) > 1
    assert reply_to(client, questions) == replies


def test_a_wrong_key_or_model_is_said(vllm_server, tmp_path, monkeypatch):
    other = vllm_server.model_copy(update={"model": "tyni"})
    with pytest.raises(UserError, match="has no model 'tyni'; did you mean 'tiny'"):
        Client(other, RequestCache(tmp_path / "a.db")).card()
    monkeypatch.setenv("TEACHER_KEY", "sk-another")
    with pytest.raises(UserError, match="refused the key in TEACHER_KEY") as caught:
        Client(vllm_server, RequestCache(tmp_path / "b.db")).card()
    assert "sk-another" not in str(caught.value)
