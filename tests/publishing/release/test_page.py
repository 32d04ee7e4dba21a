"""Real releases in the page of the project: what it lists, and what it says of one."""

import re

import pytest
from starlette.testclient import TestClient

from posttrain.cli.page.app import create_app
from posttrain.cli.page.project import Project
from posttrain.provenance.ledger import ledger_location

# Two releases are made of real stages.
pytestmark = pytest.mark.slow


def test_releases_are_listed_with_their_figures_and_gates(released):
    root = released.project.root
    app = create_app(Project(root, ledger_location(root)))
    client = TestClient(app, base_url="http://127.0.0.1")

    def told(address):
        return " ".join(re.sub(r"<[^>]+>", " ", client.get(address).text).split())

    listed = told("/releases")
    assert listed.index("mini@v1.1.0") < listed.index("mini@v1.0.0")
    one = told("/release/mini@v1.0.0")
    for gate in ("works", "not-worse", "length"):
        assert gate in one
    assert re.search(r" pass_at_1 [\d.]+ [\d.]+ to [\d.]+ 24 2 ", one)
    assert "const DATA" in client.get("/lineage/graph?node=mini@v1.0.0").text
    # A run is of the release that holds the policy which it measured.
    measured = told("/metrics?name=evaluate/sft/pass_at_1").partition("released as")[2]
    assert re.findall(r"mini@v1\.\d\.0", measured) == ["mini@v1.1.0"] * 3 + ["mini@v1.0.0"] * 3
    assert "is not there; posttrain release verify mini@v9.0.0" in told("/release/mini@v9.0.0")
