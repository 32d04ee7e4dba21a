"""The card of a release: Markdown for people, in which what is quoted stays a quotation."""

import importlib.resources
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from posttrain.publishing.hub.origins import cost_rows, hardware_named, training_costs
from posttrain.publishing.hub.results import in_order_of_k, index_findings
from posttrain.publishing.release.card_head import card_head, methods_of_chain
from posttrain.publishing.release.names import RULES
from posttrain.publishing.release.results import policies_of
from posttrain.stage.formatting import bytesize

if TYPE_CHECKING:
    from posttrain.publishing.release.candidate import ReleaseCandidate
    from posttrain.publishing.release.chain import Chain
    from posttrain.publishing.release.inputs import OutsideInput

_SPECIAL = re.compile(r"[\\`|<>\[\]*~&$#!]|:(?=//)")


# The head of the table of gates.
_GATES = "| gate | passed because | figures |"


class Verbatim(str):
    """Markdown that is meant as such; all else that the template is given is a quotation."""


def in_markdown(text: object) -> str:
    r"""Quote a text in Markdown: it makes no cell, link, image, emphasis or line of its own.

    >>> print(in_markdown("a|b [x](http://y)" + chr(10) + "# big"))
    a\|b \[x\](http\://y) \# big

    Args:
        text: What people, models or data sets wrote.

    Returns:
        One line of Markdown that reads as the text.

    """
    if isinstance(text, Verbatim):
        return text
    line = " ".join("".join(each if each.isprintable() else " " for each in str(text)).split())
    return _SPECIAL.sub(r"\\\g<0>", line)


def as_code(text: object) -> Verbatim:
    r"""Quote a text as inline code, between more backticks than it has in a row.

    >>> print(as_code("x `y` z"), as_code("two" + chr(10) + "lines"))
    `` x `y` z `` `two\nlines`

    Args:
        text: What people, models or data sets wrote.

    Returns:
        One line of Markdown; what a page or a terminal would obey is spelled as in JSON.

    """
    line = json.dumps(str(text), ensure_ascii=False)[1:-1].replace('\\"', '"')
    line = "".join(
        each if each.isprintable() and each != "|" else f"\\u{ord(each):04x}" for each in line
    )
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    edge = " " if "`" in line or not line.strip() else ""
    return Verbatim(f"{fence}{edge}{line}{edge}{fence}")


def metric_rows(metrics: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the card's table of headline figures, row by row."""
    return [
        f"| {name} | {each['value']:.4f} | {each['low']:.4f} to {each['high']:.4f} "
        f"| {each['problems']:.0f} | {each['seeds']:.0f} |"
        for name, each in in_order_of_k(metrics)
    ]


def gate_rows(gates: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the card's table of gates, row by row."""
    rows = []
    for each in gates:
        figures = ", ".join(
            f"{in_markdown(name)} {value:.4g}" for name, value in sorted(each["figures"].items())
        )
        rows.append(
            f"| {in_markdown(each['gate']['name'])} | {in_markdown(each['rule'])} | {figures} |"
        )
    return rows


def card_findings(text: str, metrics: Mapping[str, Any], *, gates: bool) -> Iterator[str]:
    """Compare the figures on a card with those of metrics.json.

    Args:
        text: The card.
        metrics: What metrics.json holds.
        gates: Compare the table of gates too; cards of older versions quoted nothing in it.

    Yields:
        What differs.

    """
    lines = text.splitlines()
    shown = [line for line in lines if line.startswith("| pass_at_")]
    if shown != metric_rows(metrics["evaluation"]):
        yield "its table of figures does not say what metrics.json says"
    yield from index_findings(text, metrics["evaluation"])
    if gates:
        begin = lines.index(_GATES) + 2 if _GATES in lines else len(lines)
        rows = [*gate_rows(metrics["gates"]), ""]
        if lines[begin : begin + len(rows)] != rows:
            yield "its table of gates does not say what metrics.json says"


def model_card(
    candidate: "ReleaseCandidate",
    commit: str,
    *,
    people: Mapping[str, Any],
    inputs: "Sequence[OutsideInput]",
    metrics: Mapping[str, Mapping[str, float]],
    gates: Sequence[Mapping[str, Any]],
    example: Mapping[str, Any],
) -> bytes:
    """Markdown with the front matter that the Hugging Face hub reads."""
    import jinja2

    chain = candidate.chain
    params = chain.evaluation.components.get("params", {})
    costs = training_costs(candidate.evidence.ledger, chain.stages)
    text = importlib.resources.files(__package__).joinpath("card.md.tmpl").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=False,  # noqa: S701 - Markdown for people, as the rest of the release is
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        finalize=in_markdown,
    )
    return (
        environment.from_string(text)
        .render(
            tag=candidate.tag,
            config=candidate.config,
            chain=chain,
            parent=candidate.evidence.parent,
            gates=[Verbatim(row) for row in gate_rows(gates)],
            commit=commit,
            people=people,
            inputs=inputs,
            metrics=[Verbatim(row) for row in metric_rows(metrics)],
            example=example,
            rules=RULES,
            model=_describe_model(chain),
            head=Verbatim(card_head(candidate, metrics).to_yaml()),
            methods=methods_of_chain(chain),
            costs=[Verbatim(row) for row in cost_rows(costs)],
            hardware=hardware_named(costs),
            problems=next(each for each in chain.evaluation.inputs if each.role == "problems"),
            settings=[
                f"{name} {params[name]}"
                for name in ("num_samples", "temperature", "max_tokens")
                if name in params
            ],
            others=_other_policies(chain),
            quoted=lambda text: Verbatim(json.dumps(text)),
            code=as_code,
            bytesize=bytesize,
        )
        .encode()
    )


def _describe_model(chain: "Chain") -> dict[str, Any]:
    """Architecture, size and number format, from the checkpoint itself."""
    from safetensors import safe_open

    folder = chain.recipe.directory / chain.policy.path
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    count = 0
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as weights:
            count += sum(math.prod(weights.get_slice(key).get_shape()) for key in weights.keys())  # noqa: SIM118
    return {
        "architecture": (config.get("architectures") or ["model"])[0],
        "parameters": count,
        "dtype": config.get("dtype") or config.get("torch_dtype") or "float32",
    }


def _other_policies(chain: "Chain") -> list[str]:
    """pass@1 of the other policies of the same evaluation."""
    evaluation = chain.evaluation
    metrics = {
        name: evaluation.metrics.get(f"{evaluation.stage}/{name}/pass_at_1")
        for name, record in policies_of(evaluation).items()
        if record.digest != chain.policy.digest
    }
    return [f"{name} {value:.4f}" for name, value in metrics.items() if value is not None]
