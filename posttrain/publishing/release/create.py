"""Create a release: decide by its gates, write it, sign it, and move all pointers together."""

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
from posttrain.publishing.release.candidate import ReleaseCandidate, check_gates
from posttrain.publishing.release.contents import BUNDLE, CLAIMS, FolderContents, write_archive
from posttrain.publishing.release.keyless import Notary
from posttrain.publishing.release.names import Tag, choose_tag
from posttrain.publishing.release.registered import ignored_by_git
from posttrain.publishing.release.registry import Registry
from posttrain.publishing.release.verify import verify_contents
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of_file

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner


@dataclass(frozen=True)
class Created:
    """A release that now exists."""

    folder: Path
    archive: Path
    statement: str
    candidate: ReleaseCandidate

    @property
    def tag(self) -> Tag:
        """What it is called."""
        return self.candidate.tag


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
    tag, commit = free_tag(session, name)
    candidate = check_gates(session, tag)
    candidate.require_passed()
    staging = pointers.staging_folder(session.workspace.state) / uuid.uuid4().hex[:8]
    folder, archive = staging / "folder", staging / "archive.tar"
    try:
        folder.mkdir(parents=True)
        statement = write_release(
            folder, candidate, session, commit, signer, keep_key=notary is not None
        )
        contents = FolderContents(folder)
        if findings := verify_contents(contents, signer.public_key, expect=tag):
            raise AssertionError(f"a new release must verify: {findings[0]}")
        if notary is not None:
            (folder / BUNDLE).write_bytes(notary.sign(contents.read(CLAIMS)))
        with archive.open("wb") as stream:
            write_archive(contents, stream)
        ignored_by_git(root)
        message = (
            f"Release {tag}\n\nstatement: {statement}\n"
            f"archive-sha256: {sha256_of_file(archive)}\n"
            f"archive-md5: {session.store.store([archive])[archive].md5}\n"
            f"policy: {candidate.chain.policy.digest}\n"
        )
        if (actor := session.workspace.actor) is not None:
            message += f"by: {actor}\n"
        members = candidate.chain.members()
        pointers.publish(
            pointers.ReleaseStore(root, session.workspace.state, session.ledger, registry),
            staging,
            Release(str(tag), time.time(), members, commit, statement, actor),
            message,
        )
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return Created(tag.folder(root), tag.archive(root), statement, candidate)


def _committed(root: Path) -> str:
    """The commit of everything in the checkout."""
    revision = revision_of(root)
    if revision.commit is None:
        raise UserError(f"{root} has no git commit to release; git commit first")
    if revision.dirty:
        raise UserError(
            "the checkout has changes that are not committed, so the commit would not say what is "
            "released; git commit (or git checkout) them first"
        )
    return revision.commit


def free_tag(session: Session, name: str) -> tuple[Tag, str]:
    """Choose the tag of a new release, and the commit that it will be at.

    Args:
        session: The project.
        name: As it was asked for, with a version or without.

    Returns:
        The tag, and the commit of all that is in the checkout.

    Raises:
        UserError: Something is not committed, the tag is taken, or the commit is released already.

    """
    commit = _committed(session.workspace.root)
    known = tags.release_tags(session.workspace.root)
    tag = choose_tag(name, known)
    recorded = {release.tag for release in session.ledger.annotations.releases()}
    if tag in known or str(tag) in recorded:
        raise UserError(f"{tag} exists, and a release is never changed; choose another version")
    same = [each for each, at in known.items() if at == commit and each.name == tag.name]
    if same:
        raise UserError(
            f"this commit is released already, as {same[0]}; commit what makes {tag} another one"
        )
    return tag, commit
