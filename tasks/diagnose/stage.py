"""Ask every diagnostic, and write down what each says."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from posttrain.learning.rollouts.diagnostics.base import Diagnosis, Seen
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed
from tasks.diagnose.config import DiagnoseConfig

_LAYOUT = 1
_MANY = ("policies", "repeats", "reward_models", "reports", "completions", "rollouts", "curves")


def run(
    config: DiagnoseConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Diagnose, and return every figure as `diagnose/<diagnostic>/<of what>/<figure>`."""
    named: dict[str, dict[str, Path]] = {port: {} for port in _MANY}
    for role, path in inputs.items():
        port, _, name = role.partition(".")
        if name:
            named[port][name] = path
    found: dict[str, Any] = {}
    metrics: dict[str, float] = {}
    for place, (name, diagnostic) in enumerate(config.diagnostics.items()):
        seen = Seen(
            **named,
            problems=inputs.get("problems"),
            verifiers=inputs.get("verifiers"),
            reference=config.reference,
            seed=purpose_seed(context.seed, "diagnose", name),
            device=context.device,
        )
        said = diagnostic.diagnose(seen)
        _check(said, f"diagnose.diagnostics.{name}: {diagnostic.kind}")
        found[name] = {"kind": diagnostic.kind, **asdict(said)}
        for of_what, figures in said.figures.items():
            metrics |= {f"diagnose/{name}/{of_what}/{key}": each for key, each in figures.items()}
        context.progress(place + 1, len(config.diagnostics), unit="diagnostic")
    report = {"layout": _LAYOUT, "reference": config.reference, "diagnostics": found}
    text = json.dumps(report, indent=1, sort_keys=True, allow_nan=False)
    outputs["report"].write_text(text + "\n", encoding="utf-8")
    return metrics


def _check(said: Diagnosis, where: str) -> None:
    """Refuse a figure that is no finite number: what is not known is left out."""
    for of_what, figures in said.figures.items():
        for name, value in figures.items():
            if not math.isfinite(value):
                raise UserError(
                    f"{where}: the figure {name} of {of_what} is {value}; leave out what cannot be"
                    " measured"
                )
