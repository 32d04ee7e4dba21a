"""Compute again what a release states: the policy's digest, keys, and the figures of its gates."""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ruamel.yaml import YAML

from posttrain.publishing.release.config import (
    AnyGate,
    ImprovementGate,
    NoRegressionGate,
    ReleaseConfig,
    ThresholdGate,
)
from posttrain.publishing.release.contents import EVIDENCE, Contents
from posttrain.stage.hashing import sha256_of, sha256_of_json


def policy_digest(contents: Contents, files: Sequence[str]) -> str:
    """The digest of the model's folder, as `pipeline.digest` computes it, from its files."""
    lines = [f"{name}\0{contents.sha256(name)}\n".encode() for name in files]
    return sha256_of(b"".join(sorted(lines)))


def key_of(definition: Mapping[str, Any]) -> str:
    """The stage's key, computed from the components that its claim states."""
    return sha256_of_json(definition["internalParameters"]["components"])


def gates_of(contents: Contents) -> tuple[AnyGate, ...]:
    """The gates that the recipe in the release asks for."""
    text = contents.read(f"{EVIDENCE}/recipe.yaml")
    recipe = YAML(typ="safe").load(io.BytesIO(text))
    config = ReleaseConfig.parse(recipe.get("release") or {}, where="release")
    return config.every_gate()


def figures_again(gate: AnyGate, contents: Contents) -> dict[str, float] | None:
    """The figures of a gate on a metric from the stored results; None for other gates."""
    from posttrain.publishing.release import statistics
    from posttrain.publishing.release.results import Results

    if not isinstance(gate, ThresholdGate | ImprovementGate | NoRegressionGate):
        return None
    stored = json.loads(contents.read(f"{EVIDENCE}/results.json"))
    ours = Results.from_json(stored["policy"])
    if isinstance(gate, ThresholdGate):
        return dict(statistics.threshold(gate, ours).figures)
    other = stored["compared"].get(gate.name)
    if other is None:
        return {}
    theirs = Results.from_json(other)
    if isinstance(gate, ImprovementGate):
        return dict(statistics.improvement(gate, ours, theirs).figures)
    return dict(statistics.no_regression(gate, ours, theirs).figures)
