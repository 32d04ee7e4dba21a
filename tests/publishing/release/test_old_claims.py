"""Releases of 0.1 spell a gate in another way, and their claims are signed."""

from types import SimpleNamespace

import pytest

from posttrain.publishing.release.config import ALWAYS, ReleaseConfig
from posttrain.publishing.release.contents import EVIDENCE, MemoryContents
from posttrain.publishing.release.verify import _check_gates
from posttrain.stage.hashing import sha256_of_json

RECIPE = """
flow: flows.mini
release:
  licence: MIT
  gates: [{name: ours, kind: licence, allowed: [MIT]}]
"""


def claim(name, settings):
    digest = {"sha256": sha256_of_json(settings)}
    configuration = {"name": name, "digest": digest, "annotations": {"figures": {}}}
    return {"predicate": {"configuration": [configuration]}}


@pytest.mark.parametrize("recipe", [RECIPE, "flow: flows.mini\n"])
def test_the_claims_of_0_1_about_licenses_hold(recipe):
    own = [{"name": "ours", "kind": "license", "allowed": ["MIT"]}] if "ours" in recipe else []
    gates = ReleaseConfig.parse({"gates": own}, where="release").every_gate()
    assert len(gates) == len(ALWAYS)
    claims = []
    for gate in gates:
        now = gate.model_dump(mode="json")
        then = {name: "licence" if now[name] == "license" else now[name] for name in now}
        claims.append(claim(then["name"], then))
    contents = MemoryContents({f"{EVIDENCE}/recipe.yaml": recipe.encode()})
    assert list(_check_gates(SimpleNamespace(gates=claims), contents)) == []
    claims[-1] = claim(gates[-1].name, {"level": "L9"})
    (finding,) = _check_gates(SimpleNamespace(gates=claims), contents)
    assert "it was decided with other settings than the recipe's" in finding
