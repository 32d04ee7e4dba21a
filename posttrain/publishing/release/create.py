"""Create a release: judge it, write it, sign it, and move all pointers together."""

import base64
import json
import shutil
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.pipeline.execution.session import Session
from posttrain.provenance.git import revision_of
from posttrain.provenance.ledger import ArtifactRecord, Release
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.publishing.release import pointers, tags
from posttrain.publishing.release.assemble import Draft, write_release
from posttrain.publishing.release.chain import Chain, read_chain
from posttrain.publishing.release.config import AnyGate, ComparisonGate, ReleaseConfig
from posttrain.publishing.release.contents import (
    BUNDLE,
    CLAIMS,
    EVIDENCE,
    FolderContents,
    write_archive,
)
from posttrain.publishing.release.fetch import ignored_by_git
from posttrain.publishing.release.gates import judge
from posttrain.publishing.release.gates.evidence import Evidence
from posttrain.publishing.release.gates.metrics import other_results
from posttrain.publishing.release.keyless import Notary
from posttrain.publishing.release.names import Tag, choose_tag
from posttrain.publishing.release.registry import Registry
from posttrain.publishing.release.results import Results, collect
from posttrain.publishing.release.statistics import GateResult
from posttrain.publishing.release.verify import verify_contents
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

Judged = list[tuple[AnyGate, GateResult]]


@dataclass(frozen=True)
class Created:
    """A release that now exists."""

    tag: Tag
    folder: Path
    archive: Path
    statement: str
    judged: Judged


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


def create(
    session: Session,
    name: str,
    signer: "CryptoSigner",
    registry: Registry | None,
    notary: Notary | None = None,
) -> Created:
    """Release what the workspace holds, or refuse with the gates that failed; all or nothing.

    With a notary, `signer` is a key for this one release, whose claims the notary then certifies.
    """
    root = session.workspace.root
    revision = revision_of(root)
    if revision.commit is None:
        raise UserError(f"{root} has no git commit to release; git commit first")
    if revision.dirty:
        raise UserError(
            "the checkout has changes that are not committed, so the commit would not say what is "
            "released; git commit (or git checkout) them first"
        )
    known = tags.release_tags(root)
    tag = choose_tag(name, known)
    _refuse_taken(session, tag, known, revision.commit)
    evidence, judged = check_gates(session, tag)
    refuse(judged)
    draft = Draft(tag, session.workspace, evidence, judged, revision.commit, _compared(evidence))
    staging = pointers.staging_folder(session.workspace.state) / uuid.uuid4().hex[:8]
    try:
        folder = staging / "folder"
        folder.mkdir(parents=True)
        statement = write_release(folder, draft, signer, keep_key=notary is not None)
        contents = FolderContents(folder)
        if findings := verify_contents(contents, signer.public_key, expect=tag):
            raise AssertionError(f"a new release must verify: {findings[0]}")
        if notary is not None:
            (folder / BUNDLE).write_bytes(notary.sign(contents.read(CLAIMS)))
        archive = staging / "archive.tar"
        with archive.open("wb") as stream:
            write_archive(contents, stream)
        _publish(session, draft, staging, statement, registry)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return Created(tag, tag.folder(root), tag.archive(root), statement, judged)


def refuse(judged: Judged) -> None:
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


def members(chain: Chain) -> tuple[ArtifactRecord, ...]:
    """What a release names in the ledger: the policy, and the evaluation that judged it."""
    return (chain.policy, *chain.evaluation.outputs)


def _publish(
    session: Session, draft: Draft, staging: Path, statement: str, registry: Registry | None
) -> None:
    root, tag = session.workspace.root, draft.tag
    ignored_by_git(root)
    archive = staging / "archive.tar"
    stored = session.store.store([archive])[archive]
    digest = FolderContents(staging).sha256("archive.tar")
    message = (
        f"Release {tag}\n\nstatement: {statement}\narchive-sha256: {digest}\n"
        f"archive-md5: {stored.md5}\npolicy: {draft.evidence.chain.policy.digest}\n"
    )
    release = Release(str(tag), time.time(), members(draft.evidence.chain), draft.commit, statement)
    pointers.publish(
        pointers.ReleaseStore(root, session.workspace.state, session.ledger, registry),
        pointers.Publication(tag, draft.commit, message, release, staging),
    )


def _refuse_taken(session: Session, tag: Tag, known: dict[Tag, str], commit: str) -> None:
    recorded = {release.tag for release in session.ledger.annotations.releases()}
    if tag in known or str(tag) in recorded:
        raise UserError(f"{tag} exists, and a release is never changed; choose another version")
    same = [each for each, at in known.items() if at == commit and each.name == tag.name]
    if same:
        raise UserError(
            f"this commit is released already, as {same[0]}; commit what makes {tag} another one"
        )


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
    record = ArtifactRecord("policy", "checkpoint", "", stored.policy, 0)
    now = collect(session.ledger, finder, policy=record, evaluation=chain.evaluation)
    if dict(stored.basis) == dict(now.basis):
        return Results(stored.policy, stored.basis, {**stored.by_seed, **now.by_seed})
    return now if now.by_seed else stored


def _last_statement(contents: FolderContents) -> tuple[str, dict[str, Any]]:
    """Digest and content of the statement about the whole release."""
    from posttrain.publishing.release.canonical import sha256

    line = contents.read(CLAIMS).splitlines()[-1]
    payload = base64.b64decode(json.loads(line)["payload"])
    return sha256(payload), json.loads(payload)


def _compared(evidence: Evidence) -> dict[str, Any]:
    """Results that gates compared with, by gate: with them anybody can judge again."""
    found = {}
    for gate in evidence.config.every_gate():
        if isinstance(gate, ComparisonGate):
            other = other_results(gate, evidence)
            if other is not None:
                found[gate.name] = other.to_json()
    return found
