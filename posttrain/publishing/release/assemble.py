"""Write a release folder: the policy, everything it came from, and the signed claims about it."""

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.ledger import Ledger
from posttrain.provenance.lineage.names import Selected, find_node
from posttrain.provenance.lineage.queries import up
from posttrain.provenance.lineage.render.as_json import as_object
from posttrain.publishing.release.bom import bill_of_materials
from posttrain.publishing.release.canonical import canonical, pretty, public_path, sha256
from posttrain.publishing.release.card import Card, model_card
from posttrain.publishing.release.chain import Chain
from posttrain.publishing.release.code import code_archive
from posttrain.publishing.release.config import AnyGate
from posttrain.publishing.release.contents import BUNDLE, CLAIMS, EVIDENCE, SIGNER, FolderContents
from posttrain.publishing.release.envelopes import sign
from posttrain.publishing.release.environment import environment_lock, requirements
from posttrain.publishing.release.gates.evidence import Evidence
from posttrain.publishing.release.inputs import OutsideInput, outside_inputs
from posttrain.publishing.release.keys import public_pem
from posttrain.publishing.release.names import Tag
from posttrain.publishing.release.replays import store_replays
from posttrain.publishing.release.statements import (
    gate_statement,
    release_statement,
    stage_statement,
)
from posttrain.publishing.release.statistics import GateResult, estimates
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, Signer

# The hub adds a file of this name where there is none, and an added file does not verify.
_LARGE_FILES = b"".join(
    b"%b filter=lfs diff=lfs merge=lfs -text\n" % each for each in (b"*.safetensors", b"*.tar")
)
Judged = Sequence[tuple[AnyGate, GateResult]]


@dataclass(frozen=True)
class Draft:
    """What is written into a release."""

    tag: Tag
    workspace: Workspace
    evidence: Evidence
    judged: Judged
    commit: str
    others: Mapping[str, Any]
    """Results of the policies that gates compared with, by gate."""


def write_release(
    folder: Path, draft: Draft, signer: "CryptoSigner", *, keep_key: bool = False
) -> str:
    """Fill an empty folder; the digest of the signed statement about all of it.

    `keep_key` puts the signer's public key into the release.
    """
    chain = draft.evidence.chain
    policy_files = _copy_policy(chain, folder)
    for name, data in _files(draft).items():
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


def _files(draft: Draft) -> dict[str, bytes]:
    """Every generated file by its name."""
    evidence, chain = draft.evidence, draft.evidence.chain
    inputs = outside_inputs(chain, evidence.config.licences)
    metrics = estimates(evidence.results)
    lock = environment_lock()
    name, version = draft.tag.name, str(draft.tag.version)
    example = _example(evidence)
    card = Card(
        str(draft.tag),
        evidence.parent,
        draft.commit,
        evidence.config,
        inputs,
        draft.judged,
        metrics,
        example,
    )
    files = {
        ".gitattributes": _LARGE_FILES,
        "README.md": model_card(card, chain),
        f"{EVIDENCE}/bom.cdx.json": bill_of_materials(
            name, version, chain, inputs, lock["packages"], metrics=metrics
        ),
        f"{EVIDENCE}/code.tar": code_archive(draft.workspace),
        f"{EVIDENCE}/environment.json": pretty(lock),
        f"{EVIDENCE}/requirements.txt": requirements(lock),
        f"{EVIDENCE}/lineage.json": _lineage(evidence.ledger, chain),
        f"{EVIDENCE}/metrics.json": pretty(_metrics(draft, metrics)),
        f"{EVIDENCE}/results.json": pretty(
            {"policy": evidence.results.to_json(), "compared": dict(draft.others)}
        ),
        f"{EVIDENCE}/data.json": pretty(_data(chain, inputs)),
        f"{EVIDENCE}/example.json": pretty(example),
    }
    for given in ("recipe.yaml", "params.yaml", "dvc.yaml", "dvc.lock"):
        path = chain.recipe.path if given == "recipe.yaml" else chain.recipe.directory / given
        files[f"{EVIDENCE}/{given}"] = path.read_bytes()
    return files


def _metrics(draft: Draft, metrics: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    stages = {run.stage: dict(run.metrics) for run in draft.evidence.chain.stages}
    gates = [
        {
            "gate": gate.model_dump(mode="json"),
            "rule": result.rule,
            "figures": dict(result.figures),
        }
        for gate, result in draft.judged
    ]
    return {
        "evaluation": {name: dict(value) for name, value in metrics.items()},
        "gates": gates,
        "stages": stages,
    }


def _lineage(ledger: Ledger, chain: Chain) -> bytes:
    """The graph above the policy and its evaluation; hosts and logs stay at home."""
    node = find_node(ledger, chain.evaluation.id, root=chain.root, cwd=chain.root)
    graph = up(ledger, Selected(node.id, node.artifact, node.derivation), limit=None)
    nodes = []
    for each in graph.nodes.values():
        shown = as_object(each)
        shown["facts"] = {
            key: value for key, value in shown["facts"].items() if key not in ("host", "log")
        }
        shown["name"] = public_path(str(shown["name"]))
        nodes.append(shown)
    edges = sorted((edge.source, edge.target, edge.role) for edge in graph.edges)
    return pretty({"root": graph.root, "nodes": nodes, "edges": [list(edge) for edge in edges]})


def _data(chain: Chain, inputs: Sequence[OutsideInput]) -> dict[str, Any]:
    artifacts = [
        {**vars(record), "type": str(record.type), "path": public_path(record.path)}
        for record in chain.artifacts()
    ]
    return {
        "artifacts": sorted(artifacts, key=lambda each: (each["path"], each["digest"])),
        "inputs": [vars(each) for each in inputs],
        "recipe": chain.recipe.directory.relative_to(chain.root).as_posix(),
        "seed": chain.recipe.run.seed,
    }


def _example(evidence: Evidence) -> dict[str, Any]:
    """One greedy completion by plain transformers, by which a served release is checked."""
    from posttrain.publishing.release.example import greedy_example

    problems = next(each for each in evidence.chain.evaluation.inputs if each.role == "problems")
    return greedy_example(evidence.find(evidence.chain.policy), evidence.find(problems))


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
    claims = [sha256(canonical(statement)) for statement in statements]
    last = release_statement(files, claims, about)
    lines = [sign(statement, signer) for statement in (*statements, last)]
    (folder / CLAIMS).write_bytes(b"\n".join(lines) + b"\n")
    return hashlib.sha256(canonical(last)).hexdigest()
