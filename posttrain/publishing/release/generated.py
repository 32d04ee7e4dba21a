"""The generated files of a release: its card, its bill of materials, its figures and its code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.pipeline.workspace import Workspace
from posttrain.publishing.release.bom import bill_of_materials
from posttrain.publishing.release.canonical import pretty, public_path
from posttrain.publishing.release.card import Card, model_card
from posttrain.publishing.release.chain import Chain, lineage_above
from posttrain.publishing.release.code import code_archive
from posttrain.publishing.release.config import AnyGate
from posttrain.publishing.release.contents import EVIDENCE
from posttrain.publishing.release.environment import environment_lock, requirements
from posttrain.publishing.release.gates.evidence import Evidence
from posttrain.publishing.release.inputs import OutsideInput, outside_inputs
from posttrain.publishing.release.names import Tag
from posttrain.publishing.release.plugins import used_plugins
from posttrain.publishing.release.statistics import GateResult, estimates

# The hub adds a file of this name where there is none, and an added file does not verify.
_LARGE_FILES = b"".join(
    b"%b filter=lfs diff=lfs merge=lfs -text\n" % each for each in (b"*.safetensors", b"*.tar")
)
# New tokens of the stored completion.
_NEW_TOKENS = 32
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


def generated_files(draft: Draft) -> dict[str, bytes]:
    """Return the bytes of every generated file, by its name in the release."""
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
        f"{EVIDENCE}/lineage.json": pretty(lineage_above(evidence.ledger, chain)),
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


def _data(chain: Chain, inputs: Sequence[OutsideInput]) -> dict[str, Any]:
    artifacts = [
        {**vars(record), "type": str(record.type), "path": public_path(record.path)}
        for record in chain.artifacts()
    ]
    return {
        "artifacts": sorted(artifacts, key=lambda each: (each["path"], each["digest"])),
        "inputs": [vars(each) for each in inputs],
        "recipe": chain.recipe.directory.relative_to(chain.root).as_posix(),
        "plugins": used_plugins(chain.stages),
        "seed": chain.recipe.run.seed,
    }


def _example(evidence: Evidence) -> dict[str, Any]:
    """One greedy completion by plain transformers, by which a served release is checked."""
    problems = next(each for each in evidence.chain.evaluation.inputs if each.role == "problems")
    return greedy_example(evidence.find(evidence.chain.policy), evidence.find(problems))


def greedy_example(policy: Path, problems: Path) -> dict[str, Any]:
    """The greedy completion of the first problem, by plain transformers from the saved folder."""
    import polars as pl

    prompt = str(pl.read_parquet(problems, columns=["prompt"], n_rows=1)["prompt"][0])
    return {"prompt": prompt, **complete(policy, prompt)}


def complete(policy: Path, prompt: str) -> dict[str, Any]:
    """Ids and texts of a prompt, in the chat template if there is one, and of its completion."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(policy)
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32).eval()
    messages = [{"role": "user", "content": prompt}]
    text = prompt
    if tokenizer.chat_template:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompt_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        made = model.generate(
            input_ids=torch.tensor([prompt_ids]),
            attention_mask=torch.ones(1, len(prompt_ids), dtype=torch.long),
            max_new_tokens=_NEW_TOKENS,
            do_sample=False,
            pad_token_id=tokenizer.pad_token_id,
        )
    completion_ids = made[0, len(prompt_ids) :].tolist()
    return {
        "chat": bool(tokenizer.chat_template),
        "prompt_ids": prompt_ids,
        "completion_ids": completion_ids,
        "completion": tokenizer.decode(completion_ids, skip_special_tokens=True),
    }
