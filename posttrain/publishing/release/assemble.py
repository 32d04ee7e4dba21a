"""Write a release folder: the policy, everything it came from, and the signed claims about it."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.pipeline.execution.session import Session
from posttrain.publishing.release.candidate import ReleaseCandidate
from posttrain.publishing.release.chain import Chain
from posttrain.publishing.release.code import code_archive
from posttrain.publishing.release.contents import BUNDLE, CLAIMS, EVIDENCE, SIGNER, FolderContents
from posttrain.publishing.release.generated import generated_files
from posttrain.publishing.release.keys import public_pem
from posttrain.publishing.release.people import people_behind
from posttrain.publishing.release.replays import store_replays
from posttrain.publishing.release.statements import (
    gate_statement,
    release_statement,
    sign,
    stage_statement,
)
from posttrain.publishing.release.statistics import STATISTICS
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of_json

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner


def write_release(
    folder: Path,
    candidate: ReleaseCandidate,
    session: Session,
    commit: str,
    signer: "CryptoSigner",
    *,
    keep_key: bool = False,
) -> str:
    """Fill an empty folder; the digest of the signed statement about all of it.

    `session` has the project's code. `keep_key` puts the signer's public key into the release.
    """
    chain = candidate.chain
    code = code_archive(session.workspace, session.planner.keys.files())
    policy_files = _copy_policy(chain, folder)
    files = generated_files(candidate, code, commit)
    if keep_key:
        files[SIGNER] = public_pem(signer.public_key)
    for name, data in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    _copy_inputs(chain, folder)
    if chain.recipe.run.level == "L2":
        store_replays(candidate.evidence, folder)
    statements = [stage_statement(run, commit) for run in chain.stages]
    statements += [gate_statement(*decided, chain.policy) for decided in candidate.decided]
    contents = FolderContents(folder)
    about = {
        "name": candidate.tag.name,
        "version": str(candidate.tag.version),
        "parent": candidate.evidence.parent,
        "commit": commit,
        "level": chain.recipe.run.level,
        "statistics": STATISTICS,
        "people": people_behind(
            session.ledger, chain, json.loads(files[f"{EVIDENCE}/lineage.json"])
        ),
        "policy": {"sha256": chain.policy.digest, "path": chain.policy.path, "files": policy_files},
    }
    signed = {name: (contents.sha256(name), contents.size(name)) for name in contents.names()}
    last = release_statement(signed, [sha256_of_json(each) for each in statements], about)
    lines = [sign(statement, signer) for statement in (*statements, last)]
    (folder / CLAIMS).write_bytes(b"\n".join(lines) + b"\n")
    return sha256_of_json(last)


def _copy_policy(chain: Chain, folder: Path) -> list[str]:
    source = chain.recipe.directory / chain.policy.path
    files = [path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()]
    for name in files:
        if name == "README.md" or name.startswith(f"{EVIDENCE}/") or name in (CLAIMS, BUNDLE):
            raise UserError(f"{chain.policy.path} has a file {name}, where a release puts its own")
    shutil.copytree(source, folder, copy_function=shutil.copyfile, dirs_exist_ok=True)
    return sorted(files)


def _copy_inputs(chain: Chain, folder: Path) -> None:
    """Files from outside, at their place in the project, so that the DAG can be run again."""
    for record in chain.external():
        source = (chain.recipe.directory / record.path).resolve()
        # File by file: a release has no empty folders.
        for path in source.rglob("*") if source.is_dir() else [source]:
            target = folder / EVIDENCE / "inputs" / path.relative_to(chain.root)
            if path.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
