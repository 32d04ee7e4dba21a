"""Create a release: judge it, write it, sign it, and move all pointers together."""

import shutil
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.pipeline.execution.session import Session
from posttrain.provenance.git import revision_of
from posttrain.provenance.ledger import Release
from posttrain.publishing.release import pointers, tags
from posttrain.publishing.release.assemble import write_release
from posttrain.publishing.release.contents import BUNDLE, CLAIMS, FolderContents, write_archive
from posttrain.publishing.release.fetch import ignored_by_git
from posttrain.publishing.release.generated import Draft
from posttrain.publishing.release.judging import (
    Judged,
    check_gates,
    compared_results,
    refuse_failed,
)
from posttrain.publishing.release.keyless import Notary
from posttrain.publishing.release.names import Tag, choose_tag
from posttrain.publishing.release.registry import Registry
from posttrain.publishing.release.verify import verify_contents
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner


@dataclass(frozen=True)
class Created:
    """A release that now exists."""

    tag: Tag
    folder: Path
    archive: Path
    statement: str
    judged: Judged


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
    refuse_failed(judged)
    draft = Draft(
        tag, session.workspace, evidence, judged, revision.commit, compared_results(evidence)
    )
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
    release = Release(
        str(tag), time.time(), draft.evidence.chain.members(), draft.commit, statement
    )
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
