"""Check a release: every byte, claim, link and signature, with nothing but a public key."""

import io
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML

from posttrain.pipeline.recipe_formats import migrate_release, read_format
from posttrain.publishing.release.config import ReleaseConfig
from posttrain.publishing.release.contents import (
    CLAIMS,
    EVIDENCE,
    ArchiveContents,
    Contents,
    is_canonical,
    open_contents,
)
from posttrain.publishing.release.gates.metrics import MetricGate
from posttrain.publishing.release.names import Tag
from posttrain.publishing.release.results import Results
from posttrain.publishing.release.statements import (
    PROVENANCE,
    RELEASE,
    TEST_RESULT,
    BadEnvelope,
    check_statement,
    last_statement,
    open_envelope,
)
from posttrain.publishing.release.statistics import monte_carlo_tolerance
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import digest_of_files, sha256_of, sha256_of_json

if TYPE_CHECKING:
    from securesystemslib.signer import Key

Statement = Mapping[str, Any]


@dataclass(frozen=True)
class SignedClaims:
    """The statements of a release whose signatures held, by kind; `last` is about all of it."""

    last: Statement
    stages: tuple[Statement, ...]
    gates: tuple[Statement, ...]
    digests: tuple[str, ...]

    @property
    def about(self) -> Mapping[str, Any]:
        """What the last claim says of the release."""
        about: Mapping[str, Any] = self.last["predicate"]
        return about


def verify_path(
    path: Path, key: "Key", *, expect: Tag | None = None, proven: Collection[str] = ()
) -> list[str]:
    """Everything that is wrong with the folder or archive at `path`; empty where nothing is.

    Files that are `proven` need no claim about them: somebody else has vouched for their bytes.
    """
    if not path.exists():
        raise UserError(f"there is no release at {path}; name its folder, its archive or its tag")
    try:
        contents = open_contents(path)
        findings = verify_contents(contents, key, expect=expect, proven=proven)
    except UserError as error:
        return [str(error)]
    if isinstance(contents, ArchiveContents) and not is_canonical(path, contents):
        findings.append(
            f"{path.name}: bytes between its files were altered (headers, padding or order)"
        )
    return findings


def verify_contents(
    contents: Contents, key: "Key", *, expect: Tag | None = None, proven: Collection[str] = ()
) -> list[str]:
    """Check signatures first; what no signature covers is not looked into any further."""
    claims, findings = read_claims(contents, key)
    if claims is None:
        return findings
    checks = (
        _check_claims(claims),
        _check_name(claims, expect),
        _check_files(claims, contents, proven),
        _check_links(claims),
    )
    findings += [finding for check in checks for finding in check]
    if not findings:
        # These read the files, whose bytes are known to be the signed ones now.
        findings += [*_check_policy(claims, contents), *_check_gates(claims, contents)]
    return findings


def read_claims(contents: Contents, key: "Key") -> tuple[SignedClaims | None, list[str]]:
    """The statements of claims.jsonl, or what is wrong with them, line by line."""
    if CLAIMS not in contents.names():
        return None, [f"{CLAIMS} is missing: nothing in the release is signed"]
    data = contents.read(CLAIMS)
    lines = data.split(b"\n")
    findings = [] if lines.pop() == b"" else [f"{CLAIMS}: its last line is cut off"]
    statements, digests = [], []
    for number, line in enumerate(lines, 1):
        try:
            statement, payload = open_envelope(line, key)
            check_statement(statement)
        except (BadEnvelope, ValueError, KeyError, TypeError) as error:
            findings.append(f"{CLAIMS}, claim {number}: {error}")
            continue
        statements.append(statement)
        digests.append(sha256_of(payload))
    if findings:
        return None, findings
    if not statements or statements[-1]["predicateType"] != RELEASE:
        return None, [f"{CLAIMS}: the last claim, which is about the whole release, is missing"]
    stages, gates = (
        tuple(each for each in statements if each["predicateType"] == kind)
        for kind in (PROVENANCE, TEST_RESULT)
    )
    return SignedClaims(statements[-1], stages, gates, tuple(digests[:-1])), []


def _check_claims(claims: SignedClaims) -> Iterator[str]:
    """The last claim names every other one, in order; nothing dropped, added or replayed."""
    named = list(claims.about["claims"])
    present = list(claims.digests)
    if named == present:
        return
    for digest in named:
        if digest not in present:
            yield f"{CLAIMS}: claim {named.index(digest) + 1} ({digest[:12]}) was dropped"
    for number, digest in enumerate(present, 1):
        if digest not in named:
            yield f"{CLAIMS}, claim {number}: it was signed, but for another release"
    twice = [digest for digest, count in Counter(present).items() if count > 1]
    for digest in twice:
        yield f"{CLAIMS}: claim {present.index(digest) + 1} is there more than once"
    if Counter(named) == Counter(present):
        yield f"{CLAIMS}: its claims are in another order than they were signed in"


def _check_name(claims: SignedClaims, expect: Tag | None) -> Iterator[str]:
    stated = f"{claims.about['name']}@{claims.about['version']}"
    if expect is not None and stated != str(expect):
        yield f"it is the release {stated}, not {expect}"


def _check_files(
    claims: SignedClaims, contents: Contents, proven: Collection[str]
) -> Iterator[str]:
    """Every file is the signed one, none is missing and none was added."""
    signed = {each["name"]: each["digest"]["sha256"] for each in claims.last["subject"]}
    present = set(contents.names()) - {CLAIMS, *proven}
    for name in sorted(signed.keys() - present):
        yield f"{name}: it is missing"
    for name in sorted(present - signed.keys()):
        yield f"{name}: it was added; no claim is about it"
    for name in sorted(present & signed.keys()):
        found = contents.sha256(name)
        if found != signed[name]:
            yield f"{name}: its bytes were altered ({found[:12]}, signed {signed[name][:12]})"


def _check_links(claims: SignedClaims) -> Iterator[str]:
    """Whatever a stage read is what the stage before it made; keys fit what they are made of."""
    made = {
        (each["annotations"]["producer"], each["digest"]["sha256"])
        for claim in claims.stages
        for each in claim["subject"]
    }
    for claim in claims.stages:
        definition = claim["predicate"]["buildDefinition"]
        stage = definition["externalParameters"]["stage"]
        parameters = definition["internalParameters"]
        if sha256_of_json(parameters["components"]) != parameters["key"]:
            yield f"stage {stage}: its key does not fit the parameters, code and inputs it names"
        for each in definition["resolvedDependencies"]:
            producer = each.get("annotations", {}).get("producer")
            if producer and (producer, each["digest"]["sha256"]) not in made:
                yield f"stage {stage}: no claim is about {each['name']}, which {producer} made"
    policy = claims.about["policy"]["sha256"]
    if policy not in {digest for _, digest in made}:
        yield "the policy: no stage's claim is about it"
    for claim in claims.gates:
        if [each["digest"]["sha256"] for each in claim["subject"]] != [policy]:
            yield f"gate {_gate_name(claim)}: it is about another policy"
        if claim["predicate"]["result"] != "PASSED":
            yield f"gate {_gate_name(claim)}: it did not pass"


def _check_policy(claims: SignedClaims, contents: Contents) -> Iterator[str]:
    """The model files together are the artifact that the claims are about."""
    about = claims.about["policy"]
    files = ((name.encode(), contents.sha256(name)) for name in about["files"])
    if digest_of_files(files) != about["sha256"]:
        yield "the policy: its files are not the artifact that its stage made"


_NAME_IN_0_1 = {"license": "licence"}
"""Kinds, and default names, of gates that the claims of 0.1 spell in another way."""


def _check_gates(claims: SignedClaims, contents: Contents) -> Iterator[str]:
    """Every gate of the recipe was decided, and its figures follow from the results."""
    claimed = {_gate_name(claim): claim for claim in claims.gates}
    # Every release has a gate of this kind, whatever its name.
    is_of_0_1 = any(_gate_kind(claim) in _NAME_IN_0_1.values() for claim in claims.gates)
    for gate in _released_config(contents).every_gate():
        name = gate.name if gate.name in claimed else _NAME_IN_0_1.get(gate.name, gate.name)
        claim = claimed.pop(name, None)
        if claim is None:
            yield f"gate {gate.name}: the recipe asks for it, and no claim is about it"
            continue
        configuration = claim["predicate"]["configuration"][0]
        settings = gate.model_dump(mode="json")
        former = settings | {"name": name, "kind": _NAME_IN_0_1.get(gate.kind, gate.kind)}
        known = {sha256_of_json(settings), sha256_of_json(former)}
        if configuration["digest"]["sha256"] not in known:
            yield f"gate {gate.name}: it was decided with other settings than the recipe's"
        if isinstance(gate, MetricGate):
            stated = configuration["annotations"]["figures"]
            if not _follow(gate, stated, contents, drawn_anew=is_of_0_1):
                yield f"gate {gate.name}: its figures do not follow from the per-problem results"
            elif not gate.passes(stated):
                yield f"gate {gate.name}: by its own figures it did not pass"
    for name in claimed:
        yield f"gate {name}: the recipe does not ask for it"


def _follow(
    gate: MetricGate, stated: Mapping[str, float], contents: Contents, *, drawn_anew: bool
) -> bool:
    """Equal to those from the stored results but for the last digits, where processors differ.

    0.1 resampled with other random numbers, so with `drawn_anew` what came of them may differ by
    what such numbers explain; means and counts may not.
    """
    again = _figures_again(gate, contents)
    if again.keys() != stated.keys() or "low" not in stated:
        return False
    allowed = dict.fromkeys(again, 1e-12)
    if drawn_anew:
        for name in gate.resampled() & again.keys():
            allowed[name] = monte_carlo_tolerance(name, again, gate.confidence)
    return all(
        math.isclose(again[name], stated[name], rel_tol=1e-9, abs_tol=allowed[name])
        for name in again
    )


def _gate_name(claim: Statement) -> str:
    return str(claim["predicate"]["configuration"][0]["name"])


def _gate_kind(claim: Statement) -> str:
    return str(claim["predicate"]["configuration"][0]["annotations"]["gate"]["kind"])


def _released_config(contents: Contents) -> ReleaseConfig:
    """The release section of the recipe in the release."""
    text = contents.read(f"{EVIDENCE}/recipe.yaml")
    recipe = YAML(typ="safe").load(io.BytesIO(text))
    read_format(recipe.get("format"), where="the release's recipe.yaml")
    section = migrate_release(recipe.get("release") or {}).values["release"]
    return ReleaseConfig.parse(section, where="release")


def _figures_again(gate: MetricGate, contents: Contents) -> Mapping[str, float]:
    """The figures of a gate on a metric from the stored results."""
    stored = contents.evidence("results")
    other = stored["compared"].get(gate.name)
    theirs = None if other is None else Results.from_json(other)
    return gate.decide(Results.from_json(stored["policy"]), theirs).figures


def said_about(contents: Contents) -> dict[str, Any]:
    """The last claim's own words, unchecked: for listings, never for a decision."""
    return dict(last_statement(contents)[1]["predicate"])
