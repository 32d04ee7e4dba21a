"""One Ray cluster of this machine for all tests that need one, and a policy to draw from."""

import importlib.util
import os
import secrets
import sys

import psutil
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from posttrain.learning.models.load import Policy
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rollouts.engines.base import Prompt
from posttrain.stage.resources import RayResources

# Ray reads its token once, when it is imported, and tests of refusals import it without a cluster.
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


@pytest.fixture(scope="session")
def ray():
    """The `ray` module, connected to a cluster of four CPUs; no process outlives the tests."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed here; run: pip install 'posttrain[ray]'")
    from posttrain.backends.cluster.connection import connected

    with connected(RayResources(address="local", actors=1, cpus=0.1)) as ray:
        started = _of_ray()
        assert len(started) >= 2  # the store of the cluster, and the machine's own daemon
        yield ray
        started |= _of_ray()
    assert not ray.is_initialized()
    # They end at once or never; on a machine with much to do, "at once" can be a minute.
    _, alive = psutil.wait_procs(started, timeout=120)
    assert alive == []


def _of_ray():
    """Processes of ours that are Ray's; tests of other files have theirs."""
    children = psutil.Process().children(recursive=True)
    return {each for each in children if any("/ray/" in word for word in _command(each)[:2])}


def _command(process):
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # it has ended since it was listed
        return []


@pytest.fixture(scope="module")
def cluster(request, ray):
    """The same; classes of the test's file can be sent there."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[request.module.__name__])
    return ray


@pytest.fixture
def some():
    """`some(3)`: that many actors on the cluster of the tests, however few cores there are."""
    return lambda actors, **options: RayResources(actors=actors, cpus=0.1, **options)


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer(["2 + 3 = 5\n#### 5", "legs of a dog: 4\n#### 4"], vocab_size=270)


def build_policy(tokenizer, seed=0):
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        max_position_embeddings=64,
        eos_token_id=2,
        initializer_range=0.3,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Policy(LlamaForCausalLM(config).eval(), tokenizer)


@pytest.fixture
def policy(tokenizer):
    return build_policy(tokenizer)


@pytest.fixture
def other(tokenizer):
    """Of the same shape, with other weights."""
    return build_policy(tokenizer, seed=1)


@pytest.fixture
def prompts():
    generator = torch.Generator().manual_seed(3)
    lengths = [5, 11, 3, 20, 11, 7, 1, 9, 30, 2, 5, 6, 17]
    return [
        Prompt(f"p{i}", tuple(torch.randint(3, 260, (n,), generator=generator).tolist()))
        for i, n in enumerate(lengths)
    ]
