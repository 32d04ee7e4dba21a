"""The generated files of a release: its bill of materials, its figures and its code."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.publishing.release.candidate import ReleaseCandidate
from posttrain.publishing.release.card import model_card
from posttrain.publishing.release.card_head import benchmark_files
from posttrain.publishing.release.chain import Chain, lineage_above, public_path
from posttrain.publishing.release.contents import EVIDENCE, pretty
from posttrain.publishing.release.environment import environment_lock, requirements
from posttrain.publishing.release.gates.base import Evidence
from posttrain.publishing.release.gates.metrics import MetricGate
from posttrain.publishing.release.inputs import OutsideInput, used_plugins
from posttrain.publishing.release.people import people_behind
from posttrain.publishing.release.statistics import estimates

# The hub adds a file of this name where there is none, and an added file does not verify.
_LARGE_FILES = b"".join(
    b"%b filter=lfs diff=lfs merge=lfs -text\n" % each for each in (b"*.safetensors", b"*.tar")
)
# New tokens of the stored completion.
_NEW_TOKENS = 32


def generated_files(candidate: ReleaseCandidate, code: bytes, commit: str) -> dict[str, bytes]:
    """Return the bytes of every generated file and of `code`, by name in the release."""
    from posttrain.publishing.release.bom import bill_of_materials

    evidence, chain = candidate.evidence, candidate.chain
    inputs = evidence.inputs()
    metrics = estimates(evidence.results)
    lock = environment_lock()
    example = _example(evidence)
    written: dict[str, Any] = {
        "environment": lock,
        "lineage": lineage_above(evidence.ledger, chain),
        "metrics": _metrics(candidate, metrics),
        "results": _results(candidate),
        "data": _data(chain, inputs),
        "example": example,
    }
    card = model_card(
        candidate,
        commit,
        people=people_behind(evidence.ledger, chain, written["lineage"]),
        inputs=inputs,
        metrics=metrics,
        gates=written["metrics"]["gates"],
        example=example,
    )
    bom = bill_of_materials(candidate.tag, chain, inputs, lock["packages"], metrics=metrics)
    files = {
        ".gitattributes": _LARGE_FILES,
        "README.md": card,
        **benchmark_files(candidate, metrics),
        f"{EVIDENCE}/bom.cdx.json": bom,
        f"{EVIDENCE}/code.tar": code,
        f"{EVIDENCE}/requirements.txt": requirements(lock),
        **{f"{EVIDENCE}/{name}.json": pretty(value) for name, value in written.items()},
    }
    for given in ("recipe.yaml", "params.yaml", "dvc.yaml", "dvc.lock"):
        path = chain.recipe.path if given == "recipe.yaml" else chain.recipe.directory / given
        files[f"{EVIDENCE}/{given}"] = path.read_bytes()
    return files


def _metrics(candidate: ReleaseCandidate, metrics: Mapping[str, Any]) -> dict[str, Any]:
    gates = [
        {
            "gate": gate.model_dump(mode="json"),
            "rule": result.rule,
            "figures": dict(result.figures),
        }
        for gate, result in candidate.decided
    ]
    stages = {run.stage: dict(run.metrics) for run in candidate.chain.stages}
    return {"evaluation": metrics, "gates": gates, "stages": stages}


def _results(candidate: ReleaseCandidate) -> dict[str, Any]:
    """The policy's results, and by gate those that it compared with: to decide again."""
    evidence = candidate.evidence
    others = {
        gate.name: gate.other_results(evidence)
        for gate, _ in candidate.decided
        if isinstance(gate, MetricGate)
    }
    compared = {name: other.to_json() for name, other in others.items() if other is not None}
    return {"policy": evidence.results.to_json(), "compared": compared}


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
    """The greedy completion of the first problem, by which a served release is checked."""
    import polars as pl

    problems = next(each for each in evidence.chain.evaluation.inputs if each.role == "problems")
    table = pl.read_parquet(evidence.find(problems), columns=["prompt"], n_rows=1)
    prompt = str(table["prompt"][0])
    return {"prompt": prompt, **complete(evidence.find(evidence.chain.policy), prompt)}


def complete(policy: Path, prompt: str) -> dict[str, Any]:
    """Complete a prompt greedily, in the chat template if there is one, by plain transformers.

    Args:
        policy: The saved folder.
        prompt: Of one user.

    Returns:
        Whether there is a template (`chat`), ids of prompt and completion, the completion's text.

    """
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
