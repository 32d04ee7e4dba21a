"""Let Inspect ask a policy, and keep its log, every answer and score."""

import importlib.metadata
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posttrain.data.benchmarks import documents_schema, samples_schema
from posttrain.data.tables import write_table
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rollouts.engines.base import SamplingParams
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.stage.context import StageContext
from posttrain.stage.declared import read_path
from posttrain.stage.errors import UserError, first_line
from posttrain.stage.extras import is_installed, package_line
from posttrain.stage.hashing import sha256_of, sha256_of_file
from posttrain.stage.seeds import purpose_seed
from tasks.inspect_ai.config import InspectConfig
from tasks.inspect_ai.told import document_of, documents_of, figures_of_log, firsts, samples_of

_LAYOUT = 1
_SEED_BITS = 31
_FOLDERS = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR")


def run(
    config: InspectConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Load the policy, let Inspect ask, and return figures as `inspect_ai/<scorer>/<metric>`."""
    if not is_installed("inspect_ai"):
        raise UserError(
            f"inspect_ai: the package is not installed; run: {package_line('inspect_ai')}"
            " (docs/how-to/inspect.md says how without an older fsspec, for which all stages would"
            " run again)"
        )
    # Where Inspect keeps traces of itself: they are of no use behind the stage.
    for variable in _FOLDERS:
        os.environ[variable] = str(context.scratch / "inspect")
    from tasks.inspect_ai.steady_log import write_steady_log

    policy = load_policy(inputs["policy"], device=context.device)
    log = _evaluated(config, policy, context)
    file = read_path(config.path).resolve()
    write_steady_log(Path(log.location), outputs["log"], folder=file.parent)
    template = str(policy.tokenizer.chat_template or "")
    report = {
        "layout": _LAYOUT,
        "policy": weights_digest(policy.model),
        "inspect_ai": importlib.metadata.version("inspect_ai"),
        "task": log.eval.task,
        "task_version": log.eval.task_version,
        "task_sha256": sha256_of_file(file),
        "documents_sha256": sha256_of("\n".join(map(document_of, firsts(log.samples)))),
        "template_sha256": sha256_of(template),
        "engine": config.engine.model_dump(mode="json"),
        "num_documents": len(firsts(log.samples)),
        "epochs": log.eval.config.epochs or 1,
        "figures": figures_of_log(log),
    }
    text = json.dumps(report, indent=1, sort_keys=True, allow_nan=False)
    outputs["report"].write_text(text + "\n", encoding="utf-8")
    write_table(documents_of(log), outputs["documents"], documents_schema())
    write_table(samples_of(log), outputs["samples"], samples_schema())
    metrics = {"inspect_ai/num_documents": float(len(firsts(log.samples)))}
    for name, figure in report["figures"].items():
        metrics[f"inspect_ai/{name}"] = figure["value"]
    return metrics


def _evaluated(config: InspectConfig, policy: Any, context: StageContext) -> Any:
    """Inspect's log of the task, with every sample scored."""
    from inspect_ai import eval as evaluate
    from inspect_ai._util.error import PrerequisiteError
    from inspect_ai.log import read_eval_log

    from tasks.inspect_ai.model import open_model

    name = config.file.rpartition("@")[2] if "@" in config.file else ""
    file = read_path(config.path).resolve()
    defaults = SamplingParams(
        max_tokens=config.max_tokens,
        temperature=config.temperature,
        seed=purpose_seed(context.seed, "inspect_ai") % 2**_SEED_BITS,
    )
    with open_engine(config.engine, policy) as engine:
        try:
            (log,) = evaluate(
                f"{file}@{name}" if name else str(file),
                model=open_model(policy, engine, defaults),
                task_args=dict(config.args),
                limit=config.limit,
                epochs=config.epochs,
                message_limit=config.messages_limit,
                # One after the other, in the order of the data: what is drawn, and the log, do not
                # depend on who is quicker.
                max_samples=1,
                max_tasks=1,
                log_dir=str(context.scratch / "logs"),
                log_format="eval",
                log_realtime=False,
                log_level="warning",
                display="none",
                score_display=False,
            )
        except (ValueError, PrerequisiteError) as error:
            raise UserError(f"inspect_ai: {config.file}: {first_line(error)}") from error
    if log.status != "success":
        said = first_line(ValueError(log.error.message)) if log.error else log.status
        raise UserError(f"inspect_ai: {config.file}: {said}")
    # What was kept is what is told.
    return read_eval_log(log.location)
