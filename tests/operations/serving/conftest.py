"""A tiny policy that is served in this process, and the real client of OpenAI's API."""

import threading

import openai
import pytest
import uvicorn

from posttrain.learning.models.load import load_policy
from posttrain.operations.services.loopback import bound
from posttrain.operations.serving.app import create_server
from posttrain.operations.serving.served import ServedPolicy
from tests.tiny_qwen import save_tiny_qwen

TEXTS = ["What is 2 + 3? The answer is five, or 5.", "Grüße: 12 * 4 = 48; 7 - 2 = 5"]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("serving") / "tiny"
    save_tiny_qwen(path, TEXTS * 20, max_length=128, seed=3)
    return path


@pytest.fixture(scope="session")
def served(tiny):
    policy = load_policy(tiny)
    return ServedPolicy("tiny", policy, "f00d" * 16, created=1)


@pytest.fixture(scope="session")
def lines():
    """What the server says of requests."""
    return []


@pytest.fixture(scope="session")
def address(served, lines):
    with bound(0) as listening:
        config = uvicorn.Config(create_server(served, lines.append), log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def client(address):
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as opened:
        yield opened
