"""The model card: what is released, how it was made and judged, written from the graph."""

from collections.abc import Mapping, Sequence

from posttrain.amounts import bytesize
from posttrain.release.chain import Chain
from posttrain.release.config import AnyGate, ReleaseConfig
from posttrain.release.inputs import OutsideInput
from posttrain.release.statistics import Verdict

_USE = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("PATH/OF/THIS/FOLDER")
tokenizer = AutoTokenizer.from_pretrained("PATH/OF/THIS/FOLDER")
```"""


def model_card(
    tag: str,
    chain: Chain,
    config: ReleaseConfig,
    inputs: Sequence[OutsideInput],
    judged: Sequence[tuple[AnyGate, Verdict]],
    metrics: Mapping[str, Mapping[str, float]],
) -> bytes:
    """Markdown with the front matter that the Hugging Face hub reads."""
    name = tag.partition("@")[0]
    parts = [
        _front_matter(config),
        f"# {name} {tag.partition('@')[2]}",
        f"The artifact `{config.policy}` of the recipe `{chain.recipe.name}`, "
        f"digest `{chain.policy.digest}`. Everything below was written from the lineage graph "
        "and is covered by the signed claims in `claims.jsonl`.",
        "## Use",
        _USE,
        "## Evaluation",
        _metrics(metrics),
        "## Gates",
        _gates(judged),
        "## Made by",
        _stages(chain),
        "## Inputs from outside",
        _inputs(inputs),
        "## Check and rebuild",
        f"```\nposttrain release verify PATH --key PUBLIC_KEY --expect {tag}\n"
        "posttrain release rebuild PATH --key PUBLIC_KEY --into EMPTY_FOLDER\n```",
    ]
    return ("\n\n".join(parts) + "\n").encode()


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


def _gates(judged: Sequence[tuple[AnyGate, Verdict]]) -> str:
    rows = []
    for gate, verdict in judged:
        figures = ", ".join(f"{key} {value:.4g}" for key, value in verdict.figures.items())
        rows.append(f"| {gate.name} | {verdict.rule} | {figures} |")
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
