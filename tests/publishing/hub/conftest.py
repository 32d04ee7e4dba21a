"""A hub of our own for huggingface_hub in this process."""

import pytest
from huggingface_hub import HfApi, constants

from posttrain import __version__
from tests import hub_server


@pytest.fixture
def hub(monkeypatch):
    """The stand-in of `tests.hub_server`; nothing goes by hf_xet, which it does not speak."""
    made, server = hub_server.started()
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", made.endpoint)
    yield made
    server.shutdown()
    server.server_close()


@pytest.fixture
def api(hub):
    """Its client, as posttrain makes it."""
    return HfApi(
        endpoint=hub.endpoint,
        token="hf_of_a_test",
        library_name="posttrain",
        library_version=__version__,
    )
