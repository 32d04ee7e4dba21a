"""Judge a release again by what it holds: its gates, its headline figures, its code."""

import io
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from posttrain.pipeline.recipe_formats import migrate_release, read_format
from posttrain.publishing.release.card import card_findings
from posttrain.publishing.release.claims import SignedClaims, Statement, gate_name
from posttrain.publishing.release.code import holds_library
from posttrain.publishing.release.config import AnyGate, ReleaseConfig
from posttrain.publishing.release.contents import EVIDENCE, Contents
from posttrain.publishing.release.gates.base import StoredEvidence
from posttrain.publishing.release.gates.metrics import MetricGate
from posttrain.publishing.release.inputs import OutsideInput
from posttrain.publishing.release.resampling import (
    RESAMPLED,
    monte_carlo_tolerance,
    resampled_estimate,
    resampled_figures,
)
from posttrain.publishing.release.results import Results
from posttrain.publishing.release.statistics import estimates
from posttrain.stage.errors import UserError, first_line
from posttrain.stage.hashing import sha256_of_json

_IN_0_1 = {"license": "licence"}
"""Kinds and default names of gates that older claims spell in another way."""

# What another processor may add to a figure.
_LAST_DIGITS = 1e-9
# A recipe is parsed by a program that takes its time.
_LONGEST_RECIPE = 2**18


def judge(claims: SignedClaims, contents: Contents) -> list[str]:
    """Return what does not follow from the bytes of a release, whoever signed that it does."""
    files: dict[str, Callable[[], Iterator[str]]] = {
        f"{EVIDENCE}/results.json": partial(_judge_gates, claims, contents),
        f"{EVIDENCE}/metrics.json": partial(_check_figures, claims, contents),
        "README.md": partial(_check_card, claims, contents),
        f"{EVIDENCE}/code.tar": partial(_check_code, contents),
    }
    findings: list[str] = []
    for name, check in files.items():
        try:
            findings += check()
        except UserError as error:
            findings.append(f"{name}: nothing can be judged by it: {error}")
        except _MALFORMED as error:
            reason = f"{type(error).__name__}, {first_line(error)}"
            findings.append(f"{name}: nothing can be judged by it ({reason})")
    return findings


# What reading files provokes that have another form than any release gave them.
_MALFORMED = (
    ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError, YAMLError,
)  # fmt: skip


def _judge_gates(claims: SignedClaims, contents: Contents) -> Iterator[str]:
    """Every gate of the recipe passes again, and its figures are the claimed ones."""
    stored = _read_evidence(claims, contents)
    claimed = {gate_name(claim): claim for claim in claims.gates}
    # Every release has a gate of this kind, whatever its name.
    is_of_0_1 = any(_gate_kind(claim) == _IN_0_1["license"] for claim in claims.gates)
    for gate in _released_config(contents).every_gate():
        name = gate.name if gate.name in claimed else _IN_0_1.get(gate.name, gate.name)
        claim = claimed.pop(name, None)
        if claim is None:
            yield f"gate {gate.name}: the recipe asks for it, and no claim is about it"
            continue
        configuration = claim["predicate"]["configuration"][0]
        if not _has_settings(configuration, gate, name):
            yield f"gate {gate.name}: it was decided with other settings than the recipe's"
        stated = configuration["annotations"]["figures"]
        if claims.statistics == 1 and isinstance(gate, MetricGate):
            again = resampled_figures(gate, stored.results, stored.compared.get(gate.name))
            passed = gate.passes(stated)
        else:
            result = gate.judge_again(stored, stated)
            again, passed = dict(result.figures), result.passed
        slack = None
        if is_of_0_1 and isinstance(gate, MetricGate):
            exact = {"p_value"} if getattr(gate, "test", "") == "sign" else set()
            slack = partial(_slack, confidence=gate.confidence, drawn=RESAMPLED - exact)
        if not _agree(stated, again, slack):
            yield f"gate {gate.name}: its figures do not follow from the per-problem results"
        elif not passed:
            yield f"gate {gate.name}: by its own figures it did not pass"
    for name in claimed:
        yield f"gate {name}: the recipe does not ask for it"


def _has_settings(configuration: Mapping[str, Any], gate: AnyGate, name: str) -> bool:
    """Read the claimed settings as the recipe is read: fields that came later have defaults."""
    given = configuration["annotations"]["gate"]
    if given.get("name") != name or configuration["digest"]["sha256"] != sha256_of_json(given):
        return False
    try:
        section = migrate_release({"gates": [given]}).values["release"]
        (claimed,) = ReleaseConfig.parse(section, where=f"gate {name}").gates
    except UserError:
        return False
    return claimed.model_dump(exclude={"name"}) == gate.model_dump(exclude={"name"})


def _read_evidence(claims: SignedClaims, contents: Contents) -> StoredEvidence:
    results, data = contents.evidence("results"), contents.evidence("data")
    recorded = contents.evidence("metrics")["stages"].values()
    inputs = [
        # 0.1 spells it as the British do.
        OutsideInput(**{"license" if key == "licence" else key: each[key] for key in each})
        for each in data["inputs"]
    ]
    return StoredEvidence(
        results=Results.from_json(results["policy"]),
        compared={name: Results.from_json(each) for name, each in results["compared"].items()},
        metrics={name: float(value) for each in recorded for name, value in each.items()},
        inputs=inputs,
        level=str(claims.about["level"]),
    )


def _check_figures(claims: SignedClaims, contents: Contents) -> Iterator[str]:
    """The headline figures are those of the per-problem results, and the gates the claimed ones."""
    metrics = contents.evidence("metrics")
    results = Results.from_json(contents.evidence("results")["policy"])
    if results.policy != claims.about["policy"]["sha256"]:
        yield f"{EVIDENCE}/results.json: it is about another policy"
    stated, again = metrics["evaluation"], estimates(results)
    slack = None
    if claims.statistics == 1:
        again = {name: resampled_estimate(name, results, 0.95) for name in again}
        slack = partial(_slack, confidence=0.95, drawn=RESAMPLED)
    for name in sorted({*again, *stated}):
        if not _agree(stated.get(name, {}), again.get(name, {}), slack):
            yield f"{EVIDENCE}/metrics.json: {name} does not follow from the per-problem results"
    decided = [claim["predicate"]["configuration"][0]["annotations"] for claim in claims.gates]
    if claims.statistics > 1 and metrics["gates"] != decided:
        yield f"{EVIDENCE}/metrics.json: its gates are not those of the claims"


def _check_card(claims: SignedClaims, contents: Contents) -> Iterator[str]:
    """The card's tables of figures say what metrics.json says."""
    text = contents.read("README.md").decode()
    for finding in card_findings(text, contents.evidence("metrics"), gates=claims.statistics > 1):
        yield f"README.md: {finding}"


def _check_code(contents: Contents) -> Iterator[str]:
    if not holds_library(contents.read(f"{EVIDENCE}/code.tar")):
        yield f"{EVIDENCE}/code.tar: it does not hold the library, so nothing can be rebuilt of it"


def _agree(
    stated: Mapping[str, float],
    again: Mapping[str, float],
    slack: Callable[[str, Mapping[str, float]], float] | None,
) -> bool:
    """Equal but for the last digits, where processors differ; resampled ones within `slack`."""
    if again.keys() != stated.keys():
        return False
    for name, value in again.items():
        allowed = slack(name, again) if slack else _LAST_DIGITS
        if not math.isclose(value, stated[name], rel_tol=_LAST_DIGITS, abs_tol=allowed):
            return False
    return True


def _slack(
    name: str, figures: Mapping[str, float], *, confidence: float, drawn: Collection[str]
) -> float:
    """0.1 resampled with other random numbers: what such numbers explain."""
    return monte_carlo_tolerance(name, figures, confidence) if name in drawn else _LAST_DIGITS


def _gate_kind(claim: Statement) -> str:
    return str(claim["predicate"]["configuration"][0]["annotations"]["gate"]["kind"])


def _released_config(contents: Contents) -> ReleaseConfig:
    """The release section of the recipe in the release."""
    text = contents.read(f"{EVIDENCE}/recipe.yaml")
    if len(text) > _LONGEST_RECIPE:
        raise UserError(f"the recipe has {len(text)} bytes; {_LONGEST_RECIPE} are the most")
    recipe = YAML(typ="safe").load(io.BytesIO(text))
    if not isinstance(recipe, Mapping):
        raise UserError("the recipe holds no sections")
    read_format(recipe.get("format"), where="the release's recipe.yaml")
    section = migrate_release(recipe.get("release") or {}).values["release"]
    return ReleaseConfig.parse(section, where="release")
