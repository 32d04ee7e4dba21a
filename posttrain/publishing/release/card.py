"""The model card: what is released, how it was made and judged, written from the graph."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.publishing.release.chain import Chain
from posttrain.publishing.release.config import AnyGate, ReleaseConfig
from posttrain.publishing.release.inputs import OutsideInput
from posttrain.publishing.release.levels import RULES
from posttrain.publishing.release.statistics import GateResult
from posttrain.stage.formatting import bytesize

_USE = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("PATH/OF/THIS/FOLDER")
tokenizer = AutoTokenizer.from_pretrained("PATH/OF/THIS/FOLDER")
%s
answer = model.generate(**inputs, max_new_tokens=%d, do_sample=False)
print(tokenizer.decode(answer[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))
```"""
_CHAT = """messages = [{"role": "user", "content": %s}]
inputs = tokenizer.apply_chat_template(
    messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"
)"""
_PLAIN = """inputs = tokenizer(%s, add_special_tokens=False, return_tensors="pt")"""
_FILES = (
    ("`claims.jsonl`", "signed in-toto statements: one a stage, one a gate, one about all files"),
    ("`release/recipe.yaml`, `params.yaml`, `dvc.yaml`, `dvc.lock`", "what was run, every field"),
    ("`release/code.tar`", "the code that ran; `release/inputs/` the files that it was given"),
    ("`release/environment.json`", "every installed package: version, licence, digest"),
    ("`release/lineage.json`", "the graph from the problems to this policy"),
    ("`release/metrics.json`, `results.json`", "figures, and the per-problem counts behind them"),
    ("`release/bom.cdx.json`", "the bill of materials (CycloneDX)"),
)


@dataclass(frozen=True)
class Card:
    """What a model card says, apart from what stands in the graph."""

    tag: str
    parent: str | None
    commit: str
    config: ReleaseConfig
    inputs: Sequence[OutsideInput]
    judged: Sequence[tuple[AnyGate, GateResult]]
    metrics: Mapping[str, Mapping[str, float]]
    example: Mapping[str, Any]


def model_card(card: Card, chain: Chain) -> bytes:
    """Markdown with the front matter that the Hugging Face hub reads."""
    name, _, version = card.tag.partition("@")
    parts = [
        _front_matter(card.config),
        f"# {name} {version}",
        f"{_model(chain)}, made by the recipe `{chain.recipe.name}`. Everything on "
        "this page was written from the lineage graph and is covered by the signed claims in "
        "`claims.jsonl`.",
        _facts(card, chain),
        "## Use",
        _use(card.example),
        "## Evaluation",
        _about_evaluation(chain),
        _metrics(card.metrics),
        _others(chain),
        "Nothing is known about it on problems of another kind than these, and nothing was "
        "measured about its safety.",
        "## Gates",
        "What the release had to pass, with the figures by which it did.",
        _gates(card.judged),
        "## Made by",
        _stages(chain),
        "## Inputs from outside",
        _inputs(card.inputs),
        "## Check and rebuild",
        f"```\nposttrain release verify PATH --key PUBLIC_KEY --expect {card.tag}\n"
        "posttrain release rebuild PATH --key PUBLIC_KEY --into EMPTY_FOLDER\n```",
        "\n".join(["| file | holds |", "|---|---|", *(f"| {a} | {b} |" for a, b in _FILES)]),
    ]
    return ("\n\n".join(part for part in parts if part) + "\n").encode()


def _model(chain: Chain) -> str:
    """Architecture, size and number format, from the checkpoint itself."""
    from safetensors import safe_open

    folder = chain.recipe.directory / chain.policy.path
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    count = 0
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as weights:
            count += sum(math.prod(weights.get_slice(key).get_shape()) for key in weights.keys())  # noqa: SIM118
    architecture = (config.get("architectures") or ["model"])[0]
    kind = config.get("dtype") or config.get("torch_dtype") or "float32"
    return f"A `{architecture}` of {count:,} parameters ({kind})"


def _facts(card: Card, chain: Chain) -> str:
    run = chain.recipe.run
    rows = (
        ("policy", f"`{card.config.policy}`, sha256 `{chain.policy.digest}`"),
        ("release before it", card.parent or "none"),
        ("commit", f"`{card.commit}`"),
        ("seed", str(run.seed)),
        ("reproducibility", f"{run.level}: {RULES[run.level]}"),
        ("licence", card.config.licence or "none stated"),
    )
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows)])


def _use(example: Mapping[str, Any]) -> str:
    prompt = json.dumps(example["prompt"])
    inputs = (_CHAT if example["chat"] else _PLAIN) % prompt
    said = json.dumps(example["completion"])
    return f"{_USE % (inputs, len(example['completion_ids']))}\n\nIt answers {said}."


def _about_evaluation(chain: Chain) -> str:
    params = chain.evaluation.components.get("params", {})
    settings = ", ".join(
        f"{name} {params[name]}"
        for name in ("num_samples", "temperature", "max_tokens")
        if name in params
    )
    problems = next(each for each in chain.evaluation.inputs if each.role == "problems")
    return (
        f"On the problems `{problems.path}` (sha256 `{problems.digest[:12]}`), which no stage "
        f"trained on; {settings}. `pass_at_k` is the chance that one of k samples is right; a "
        "seed is one more evaluation of the same policy."
    )


def _others(chain: Chain) -> str:
    """pass@1 of the other policies of the same evaluation."""
    stage = chain.evaluation.stage
    own = {
        record.role.removeprefix("policies.")
        for record in chain.evaluation.inputs
        if record.digest == chain.policy.digest
    }
    found = [
        f"{name.removeprefix(f'{stage}/').removesuffix('/pass_at_1')} {value:.4f}"
        for name, value in chain.evaluation.metrics.items()
        if name.startswith(f"{stage}/") and name.endswith("/pass_at_1") and name.count("/") == 2
        if name.split("/")[1] not in own
    ]
    seed = chain.recipe.run.seed
    return f"pass_at_1 of the others, at seed {seed}: {', '.join(found)}." if found else ""


def _front_matter(config: ReleaseConfig) -> str:
    lines = ["---", "library_name: transformers", "pipeline_tag: text-generation"]
    if config.licence:
        lines.append(f"license: {config.licence.lower()}")
    return "\n".join([*lines, "tags:", "- posttrain", "---"])


def _metrics(metrics: Mapping[str, Mapping[str, float]]) -> str:
    rows = [
        f"| {name} | {value['value']:.4f} | {value['low']:.4f} to {value['high']:.4f} | "
        f"{value['problems']:.0f} | {value['seeds']:.0f} |"
        for name, value in metrics.items()
    ]
    head = "| metric | value | 95% interval over problems | problems | seeds |"
    return "\n".join([head, "|---|---|---|---|---|", *rows])


def _gates(judged: Sequence[tuple[AnyGate, GateResult]]) -> str:
    rows = []
    for gate, result in judged:
        figures = ", ".join(f"{key} {value:.4g}" for key, value in result.figures.items())
        rows.append(f"| {gate.name} | {result.rule} | {figures} |")
    return "\n".join(["| gate | passed because | figures |", "|---|---|---|", *rows])


def _stages(chain: Chain) -> str:
    rows = []
    for run in chain.stages:
        made = ", ".join(
            f"{each.role} (`{each.digest[:12]}`, {bytesize(each.size)})" for each in run.outputs
        )
        rows.append(f"| {run.stage} | {run.task} | {made} |")
    return "\n".join(["| stage | task | outputs |", "|---|---|---|", *rows])


def _inputs(inputs: Sequence[OutsideInput]) -> str:
    if not inputs:
        return "None: every artifact was made by a stage."
    rows = [
        f"| {each.name} | {each.origin} | {each.licence} | `{(each.digest or '-')[:12]}` |"
        for each in inputs
    ]
    return "\n".join(["| name | from | licence | digest |", "|---|---|---|---|", *rows])
