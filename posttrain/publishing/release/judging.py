"""Judge what a workspace holds by the gates of its recipe, against the release before it."""

import base64
import json
from typing import Any

from posttrain.pipeline.execution.session import Session
from posttrain.provenance.ledger import ArtifactRecord
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.publishing.release import tags
from posttrain.publishing.release.chain import Chain, read_chain
from posttrain.publishing.release.config import AnyGate, ComparisonGate, ReleaseConfig
from posttrain.publishing.release.contents import CLAIMS, EVIDENCE, FolderContents
from posttrain.publishing.release.gates import judge
from posttrain.publishing.release.gates.evidence import Evidence
from posttrain.publishing.release.gates.metrics import other_results
from posttrain.publishing.release.names import Tag
from posttrain.publishing.release.results import Results, collect
from posttrain.publishing.release.statistics import GateResult
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import ArtifactDigest, sha256_of

Judged = list[tuple[AnyGate, GateResult]]


def check_gates(session: Session, tag: Tag) -> tuple[Evidence, Judged]:
    """Judge what the workspace holds by every gate; decides nothing and writes nothing."""
    config = ReleaseConfig.parse(session.recipe.release, where="release")
    chain = read_chain(session, config)
    finder = Finder(session.workspace.root, session.stat_cache)
    results = collect(session.ledger, finder, policy=chain.policy, evaluation=chain.evaluation)
    parent = _parent(session, tag)
    evidence = Evidence(
        config=config,
        chain=chain,
        ledger=session.ledger,
        finder=finder,
        results=results,
        parent=str(parent) if parent else None,
        parent_results=_parent_results(session, parent, chain, finder) if parent else None,
    )
    return evidence, [(gate, judge(gate, evidence)) for gate in config.every_gate()]


def refuse_failed(judged: Judged) -> None:
    """Raise with every gate that failed, its rule and its figures."""
    failed = [(gate, result) for gate, result in judged if not result.passed]
    if not failed:
        return
    sentences = []
    for gate, result in failed:
        figures = ", ".join(f"{key} {value:.4g}" for key, value in result.figures.items())
        remedy = f"; {result.remedy}" if result.remedy else ""
        sentences.append(f"gate '{gate.name}' failed ({result.rule}): {figures}{remedy}")
    raise UserError("nothing is released: " + " | ".join(sentences))


def compared_results(evidence: Evidence) -> dict[str, Any]:
    """Return the results that gates compared with, by gate: they allow to judge again."""
    found = {}
    for gate in evidence.config.every_gate():
        if isinstance(gate, ComparisonGate):
            other = other_results(gate, evidence)
            if other is not None:
                found[gate.name] = other.to_json()
    return found


def _parent(session: Session, tag: Tag) -> Tag | None:
    """The newest release of this name before this version."""
    before = [
        each
        for each in tags.release_tags(session.workspace.root)
        if each.name == tag.name and each.version < tag.version
    ]
    return max(before, key=lambda each: each.version, default=None)


def _parent_results(session: Session, parent: Tag, chain: Chain, finder: Finder) -> Results:
    """Results of the parent as its release holds them, joined by what the ledger knows since."""
    contents = FolderContents(parent.folder(session.workspace.root))
    name = f"{EVIDENCE}/results.json"
    if not (contents.folder / CLAIMS).is_file():
        raise UserError(
            f"the release {parent} is not at {contents.folder}, so nothing can be compared with "
            f"it; posttrain release verify {parent} brings it back from the DVC cache or remote"
        )
    statement = _last_statement(contents)
    said = tags.release_message(session.workspace.root, parent).get("statement")
    data = contents.read(name)
    stated = {each["name"]: each["digest"]["sha256"] for each in statement[1]["subject"]}
    if statement[0] != said or stated.get(name) != contents.sha256(name):
        raise UserError(
            f"{contents.folder} was altered since it was released; "
            f"posttrain release verify {parent} says what"
        )
    stored = Results.from_json(json.loads(data)["policy"])
    record = ArtifactRecord("policy", "checkpoint", "", ArtifactDigest(stored.policy), 0)
    now = collect(session.ledger, finder, policy=record, evaluation=chain.evaluation)
    if dict(stored.basis) == dict(now.basis):
        return Results(stored.policy, stored.basis, {**stored.by_seed, **now.by_seed})
    return now if now.by_seed else stored


def _last_statement(contents: FolderContents) -> tuple[str, dict[str, Any]]:
    """Digest and content of the statement about the whole release."""
    line = contents.read(CLAIMS).splitlines()[-1]
    payload = base64.b64decode(json.loads(line)["payload"])
    return sha256_of(payload), json.loads(payload)
