"""Write a release folder: the policy, everything it came from, and the signed claims about it."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.publishing.release.chain import Chain
from posttrain.publishing.release.contents import BUNDLE, CLAIMS, EVIDENCE, SIGNER, FolderContents
from posttrain.publishing.release.envelopes import sign
from posttrain.publishing.release.generated import Draft, generated_files
from posttrain.publishing.release.keys import public_pem
from posttrain.publishing.release.replays import store_replays
from posttrain.publishing.release.statements import (
    gate_statement,
    release_statement,
    stage_statement,
)
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of_json

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, Signer


def write_release(
    folder: Path, draft: Draft, signer: "CryptoSigner", *, keep_key: bool = False
) -> str:
    """Fill an empty folder; the digest of the signed statement about all of it.

    `keep_key` puts the signer's public key into the release.
    """
    chain = draft.evidence.chain
    policy_files = _copy_policy(chain, folder)
    for name, data in generated_files(draft).items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    _copy_inputs(draft, folder)
    if chain.recipe.run.level == "L2":
        store_replays(draft.evidence, folder)
    if keep_key:
        (folder / SIGNER).write_bytes(public_pem(signer.public_key))
    return _sign(folder, draft, policy_files, signer)


def _copy_policy(chain: Chain, folder: Path) -> list[str]:
    source = chain.recipe.directory / chain.policy.path
    files = [path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()]
    for name in files:
        if name == "README.md" or name.startswith(f"{EVIDENCE}/") or name in (CLAIMS, BUNDLE):
            raise UserError(f"{chain.policy.path} has a file {name}, where a release puts its own")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, folder / name)
    return sorted(files)


def _copy_inputs(draft: Draft, folder: Path) -> None:
    """Files from outside, at their place in the project, so that the DAG can be run again."""
    chain = draft.evidence.chain
    for record in chain.external():
        source = (chain.recipe.directory / record.path).resolve()
        if not source.is_relative_to(chain.root):
            raise UserError(
                f"the input {record.path} lies outside of the project, so that nobody else can "
                "rebuild from it; copy it into the project, and run again"
            )
        target = folder / EVIDENCE / "inputs" / source.relative_to(chain.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copyfile(source, target)


def _sign(folder: Path, draft: Draft, policy_files: Sequence[str], signer: "Signer") -> str:
    chain = draft.evidence.chain
    statements = [stage_statement(run, draft.commit) for run in chain.stages]
    statements += [gate_statement(gate, result, chain.policy) for gate, result in draft.judged]
    contents = FolderContents(folder)
    files = {name: contents.sha256(name) for name in contents.names()}
    about = {
        "name": draft.tag.name,
        "version": str(draft.tag.version),
        "parent": draft.evidence.parent,
        "commit": draft.commit,
        "level": chain.recipe.run.level,
        "policy": {"sha256": chain.policy.digest, "path": chain.policy.path, "files": policy_files},
    }
    claims = [sha256_of_json(statement) for statement in statements]
    last = release_statement(files, claims, about)
    lines = [sign(statement, signer) for statement in (*statements, last)]
    (folder / CLAIMS).write_bytes(b"\n".join(lines) + b"\n")
    return sha256_of_json(last)
