"""The sampler, a teacher and a wrong question against a real vLLM server on loopback."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch

from posttrain.endpoint.cache import RequestCache
from posttrain.endpoint.chat import Question, reply_to
from posttrain.endpoint.client import Client
from posttrain.endpoint.config import Endpoint
from posttrain.errors import UserError
from posttrain.models.load import save_policy
from posttrain.sampling.base import FinishReason, Prompt, SamplingParams
from posttrain.sampling.server import ServerSampler

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

KEY = "sk-loopback-only"
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "TEACHER_KEY": KEY,
}


@pytest.fixture(scope="module")
def model(wide_model):
    return wide_model("llama")


@pytest.fixture(scope="module")
def endpoint(model, tokenizer, tmp_path_factory):
    """vLLM's server on a checkpoint, from when it answers until the module is done."""
    folder = tmp_path_factory.mktemp("served")
    save_policy(model, tokenizer, folder / "model")
    (folder / "template.jinja").write_text(TEMPLATE)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    command = [
        # Not `vllm serve`: that looks up the version of a package that is called vllm-cpu here.
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(folder / "model")),
        *("--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)),
        *("--api-key", KEY, "--dtype", "float32", "--max-model-len", "64"),
        *("--max-num-seqs", "16", "--enforce-eager"),
        *("--chat-template", str(folder / "template.jinja")),
    ]
    log = folder / "log.txt"
    with log.open("w") as out, pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
        try:
            yield _answering(url, process, log)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def _answering(url, process, log):
    endpoint = Endpoint(
        base_url=url, model="tiny", api_key_env="TEACHER_KEY", concurrency=8, retries=2
    )
    for _ in range(480):
        assert process.poll() is None, log.read_text()[-4000:]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", int(url.split(":")[2].split("/")[0]))) == 0:
                return endpoint
        time.sleep(0.5)
    raise AssertionError(log.read_text()[-4000:])


@pytest.fixture
def client(endpoint, tmp_path):
    return Client(endpoint, RequestCache(tmp_path / "requests.db"))


@pytest.fixture
def sampler(client, tokenizer):
    return ServerSampler(client, tokenizer)


def test_greedy_equals_generate(sampler, model, prompts):
    assert sampler.context_length == 64
    samples = sampler.sample(prompts, SamplingParams(max_tokens=24, temperature=0.0))
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


@pytest.mark.parametrize("cut", [{}, {"top_p": 0.8}, {"top_k": 5}])
def test_logprobs_are_the_trainers(sampler, model, prompts, trainer_logprobs, cut):
    samples = sampler.sample(prompts, SamplingParams(max_tokens=24, num_samples=3, **cut))
    by_id = {prompt.id: prompt for prompt in prompts}
    for sample in samples:
        expected = trainer_logprobs(model, by_id[sample.prompt_id], sample)
        torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=1e-3, rtol=0)


def test_reasons_text_and_end_tokens_agree(sampler, prompts, tokenizer):
    samples = sampler.sample(prompts, SamplingParams(max_tokens=24, num_samples=8))
    for sample in samples:
        ended = sample.token_ids[-1] == tokenizer.eos_token_id
        assert (sample.finish_reason is FinishReason.STOP) == ended
        assert ended or len(sample.token_ids) == 24
        assert sample.text == tokenizer.decode(sample.token_ids, skip_special_tokens=True)
    assert {sample.finish_reason for sample in samples} == set(FinishReason)


def test_stop_strings_end_the_text_before_them(sampler, prompts):
    free = sampler.sample(prompts, SamplingParams(max_tokens=20, num_samples=4))
    letters = [char for sample in free for char in sample.text[1:] if char.isascii()]
    stop = max(sorted(set(letters)), key=letters.count)
    cut = sampler.sample(prompts, SamplingParams(max_tokens=20, num_samples=4, stop=(stop,)))
    for before, after in zip(free, cut, strict=True):
        assert after.text == before.text.split(stop)[0]
        assert after.token_ids == before.token_ids[: len(after.token_ids)]
        if stop in before.text:
            assert after.finish_reason is FinishReason.STOP


def test_a_sample_depends_on_seed_prompt_and_index_alone(sampler, prompts):
    params = SamplingParams(max_tokens=8, num_samples=3, seed=1)
    together = sampler.sample(prompts, params)
    other = sampler.sample(prompts, SamplingParams(max_tokens=8, num_samples=3, seed=2))
    assert [s.token_ids for s in together] != [s.token_ids for s in other]
    # Another cache, so that the server is really asked again.
    alone = Client(sampler.client.endpoint, RequestCache(sampler.client._store.path.with_name("b")))
    again = ServerSampler(alone, sampler.tokenizer).sample(prompts[1:2], params)
    expected = [s for s in together if s.prompt_id == prompts[1].id]
    assert [s.token_ids for s in again] == [s.token_ids for s in expected]


def test_prefix_continuation_room_and_refusals(sampler):
    long = Prompt("long", tuple(range(3, 65)))
    samples = sampler.sample([long], SamplingParams(max_tokens=40, num_samples=4))
    assert all(len(sample.token_ids) <= 2 for sample in samples)
    with pytest.raises(UserError, match="prompt 'epic' has 64 tokens, but the model's context is"):
        sampler.sample([Prompt("epic", (5,) * 64)], SamplingParams(max_tokens=4))


def test_a_teachers_answers_come_once_and_stay(client):
    questions = [Question(f"{n} + 1 =", temperature=1.0, max_tokens=8, seed=n) for n in range(6)]
    replies = reply_to(client, questions)
    assert len(set(replies)) > 1
    assert reply_to(client, questions) == replies


def test_a_wrong_key_or_model_is_said(endpoint, tmp_path, monkeypatch):
    other = endpoint.model_copy(update={"model": "tyni"})
    with pytest.raises(UserError, match="has no model 'tyni'; did you mean 'tiny'"):
        Client(other, RequestCache(tmp_path / "a.db")).card()
    monkeypatch.setenv("TEACHER_KEY", "sk-another")
    with pytest.raises(UserError, match="refused the key in TEACHER_KEY") as caught:
        Client(endpoint, RequestCache(tmp_path / "b.db")).card()
    assert "sk-another" not in str(caught.value)
