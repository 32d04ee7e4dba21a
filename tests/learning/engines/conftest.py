"""A small tokenizer, random models of several architectures, prompts, and a server of vLLM's."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch
import transformers

from posttrain.backends.endpoint.config import Endpoint
from posttrain.learning.models.load import save_policy
from posttrain.learning.models.logprobs import token_logprobs
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rollouts.engines.base import Prompt
from posttrain.learning.rollouts.engines.rng import row_keys, uniforms

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    # Large weights, so that the distributions are far from uniform and a wrong one shows.
    "initializer_range": 0.3,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {**LLAMA3, "rope_type": "yarn", "factor": 4.0}
ARCHITECTURES = {
    "llama": ("Llama", {"num_key_value_heads": 4}),
    "llama-gqa-tied": ("Llama", {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "llama-mqa-rope3": ("Llama", {"num_key_value_heads": 1, "rope_parameters": LLAMA3}),
    "llama-yarn": ("Llama", {"num_key_value_heads": 4, "rope_parameters": YARN}),
    "qwen2": ("Qwen2", {"num_key_value_heads": 2}),
    "mistral-window": ("Mistral", {"num_key_value_heads": 2, "sliding_window": 8}),
    "gpt-neox": ("GPTNeoX", {}),
    "gemma-tied": ("Gemma", {"num_key_value_heads": 1, "head_dim": 32}),
}

# Heads of width 32, the narrowest that vLLM's attention on a CPU knows.
WIDE = {"hidden_size": 64, "num_attention_heads": 2, "initializer_range": 0.2}


def build_model(name, vocab_size, seed=0, **sizes):
    family, options = ARCHITECTURES[name]
    options = {**SIZES, **options, **sizes}
    config = getattr(transformers, f"{family}Config")(vocab_size=vocab_size, **options)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return getattr(transformers, f"{family}ForCausalLM")(config).eval()


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer(["2 + 3 = 5\n#### 5", "legs of a dog: 4\n#### 4"], vocab_size=270)


@pytest.fixture(scope="session")
def models(tokenizer):
    return {name: build_model(name, len(tokenizer)) for name in ARCHITECTURES}


@pytest.fixture(scope="session")
def prompts():
    generator = torch.Generator().manual_seed(3)
    lengths = [5, 11, 3, 20, 11, 7]
    return [
        Prompt(f"p{i}", tuple(torch.randint(3, 260, (n,), generator=generator).tolist()))
        for i, n in enumerate(lengths)
    ]


@pytest.fixture(scope="session")
def wide_model(tokenizer):
    """Builds a model that vLLM takes on a CPU too: `wide_model("qwen2", seed=3)`."""

    def build(name, seed=0):
        # Two heads of keys at most, as there are two of queries.
        heads = min(2, ARCHITECTURES[name][1].get("num_key_value_heads", 2))
        return build_model(name, len(tokenizer), seed, **WIDE, num_key_value_heads=heads)

    return build


@pytest.fixture(scope="session")
def trainer_logprobs():
    """What the trainer makes of a sample's tokens: `trainer_logprobs(model, prompt, sample, T)`."""

    def of(model, prompt, sample, temperature=1.0):
        ids = torch.tensor([prompt.token_ids + sample.token_ids])
        wanted = torch.arange(ids.shape[1])[None] >= len(prompt.token_ids)
        with torch.no_grad():
            found = token_logprobs(model, ids, wanted_BT=wanted, temperature=temperature)
        return found.logprobs_BT[0, len(prompt.token_ids) :]

    return of


TOLERANCE = 1e-4
"""Nats by which a row's log-probabilities may differ alone and in company: `base.RolloutEngine`."""


@pytest.fixture(scope="session")
def same_draws():
    """Fails unless two calls drew the same, as far as kernels that a batch's shape chooses allow.

    Tokens are equal up to the first draw that lies on a boundary between two tokens, and their
    log-probabilities agree. `prompts` and `params` are those of both calls.
    """

    def check(model, prompts, params, found, expected):
        by_id, parted = {prompt.id: prompt for prompt in prompts}, 0
        for one, other in zip(found, expected, strict=True):
            assert (one.prompt_id, one.index) == (other.prompt_id, other.index)
            pairs = list(zip(one.token_ids, other.token_ids, strict=False))
            common = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
            torch.testing.assert_close(
                torch.tensor(one.logprobs[:common]),
                torch.tensor(other.logprobs[:common]),
                atol=TOLERANCE,
                rtol=0,
            )
            if common == len(pairs):
                assert (one.token_ids, one.text) == (other.token_ids, other.text)
                assert one.finish_reason is other.finish_reason
                continue
            parted += 1
            before = by_id[one.prompt_id].token_ids + one.token_ids[:common]
            for token in pairs[common]:
                distance = from_its_share(model, before, token, params, one, step=common)
                assert distance <= 2 * TOLERANCE, (one.prompt_id, one.index, common, distance)
        # A draw lies so near a boundary once in thousands.
        assert parted <= len(found) // 20

    return check


def from_its_share(model, before, token, params, sample, *, step):
    """How far this step's random number lies from those that draw `token`, in float64.

    Where greedy, how far the token's log-probability lies below the largest.
    """
    with torch.no_grad():
        logits = model(torch.tensor([before])).logits[0, -1].double()
    if params.greedy:
        return float(logits.max() - logits[token])
    weights = (logits / params.temperature).softmax(-1)
    upper = float(weights[: token + 1].sum())
    keys = row_keys(params.seed, [sample.prompt_id], params.num_samples)
    number = float(uniforms(keys[sample.index : sample.index + 1], step))
    return max(upper - float(weights[token]) - number, number - upper, 0.0)


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


@pytest.fixture(scope="session")
def vllm_server(wide_model, tokenizer, tmp_path_factory):
    """Its endpoint; it serves `wide_model("llama")`."""
    folder = tmp_path_factory.mktemp("served")
    save_policy(wide_model("llama"), tokenizer, folder / "model")
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
