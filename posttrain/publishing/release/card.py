"""The model card: what is released, how it was made and tested, written from the graph."""

import importlib.resources
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.publishing.release.candidate import ReleaseCandidate
from posttrain.publishing.release.chain import Chain
from posttrain.publishing.release.inputs import OutsideInput
from posttrain.publishing.release.names import RULES
from posttrain.publishing.release.results import policies_of
from posttrain.stage.formatting import bytesize


def model_card(
    candidate: ReleaseCandidate,
    commit: str,
    *,
    inputs: Sequence[OutsideInput],
    metrics: Mapping[str, Mapping[str, float]],
    example: Mapping[str, Any],
) -> bytes:
    """Markdown with the front matter that the Hugging Face hub reads."""
    import jinja2

    chain = candidate.chain
    params = chain.evaluation.components.get("params", {})
    text = importlib.resources.files(__package__).joinpath("card.md.tmpl").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=False,  # noqa: S701 - Markdown for people, as the rest of the release is
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    return (
        environment.from_string(text)
        .render(
            tag=candidate.tag,
            config=candidate.config,
            chain=chain,
            parent=candidate.evidence.parent,
            decided=candidate.decided,
            commit=commit,
            inputs=inputs,
            metrics=metrics,
            example=example,
            rules=RULES,
            model=_describe_model(chain),
            problems=next(each for each in chain.evaluation.inputs if each.role == "problems"),
            settings=[
                f"{name} {params[name]}"
                for name in ("num_samples", "temperature", "max_tokens")
                if name in params
            ],
            others=_other_policies(chain),
            quoted=json.dumps,
            bytesize=bytesize,
        )
        .encode()
    )


def _describe_model(chain: Chain) -> dict[str, Any]:
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


def _other_policies(chain: Chain) -> list[str]:
    """pass@1 of the other policies of the same evaluation."""
    evaluation = chain.evaluation
    metrics = {
        name: evaluation.metrics.get(f"{evaluation.stage}/{name}/pass_at_1")
        for name, record in policies_of(evaluation).items()
        if record.digest != chain.policy.digest
    }
    return [f"{name} {value:.4f}" for name, value in metrics.items() if value is not None]
