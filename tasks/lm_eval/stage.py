"""Ask a policy what lm-evaluation-harness asks, and keep every prompt, response and score."""

import importlib.metadata
import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from posttrain.data.benchmarks import as_json, documents_schema, samples_schema
from posttrain.data.schemas import row_id
from posttrain.data.tables import write_table
from posttrain.learning.maths.score_intervals import score_interval
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.stage.context import StageContext
from posttrain.stage.declared import read_path
from posttrain.stage.errors import UserError, first_line
from posttrain.stage.extras import is_installed, package_line
from posttrain.stage.hashing import sha256_of
from posttrain.stage.seeds import purpose_seed
from tasks.lm_eval.config import LmEvalConfig

_LAYOUT = 1
_95 = 1.959964
_SEED_BITS = 32

_MISTAKES = (ValueError, LookupError, TypeError, AttributeError, OSError)

_Sample = Mapping[str, Any]


def run(
    config: LmEvalConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Load the policy, ask, and return figures as `lm_eval/<task>/<metric>`."""
    if not is_installed("lm_eval"):
        raise UserError(f"lm_eval: the package is not installed; run: {package_line('lm_eval')}")
    from jinja2 import TemplateError
    from lm_eval import simple_evaluate

    from tasks.lm_eval.model import PolicyLM

    manager, asked = _tasks(config, context.scratch)
    policy = load_policy(inputs["policy"], device=context.device)
    template = str(policy.tokenizer.chat_template or "")
    as_messages = bool(template) if config.chat_template == "auto" else config.chat_template
    seed = purpose_seed(context.seed, "lm_eval") % 2**_SEED_BITS
    with open_engine(config.engine, policy, batch_size=config.batch_size) as engine:
        model = PolicyLM(
            policy,
            engine,
            as_messages=as_messages,
            batch_size=config.batch_size,
            max_tokens=config.max_tokens,
            seed=seed,
            progress=partial(context.progress, unit="request"),
        )
        try:
            found = simple_evaluate(
                model=model,
                tasks=asked,
                num_fewshot=config.num_fewshot,
                limit=config.limit,
                bootstrap_iters=config.bootstrap,
                task_manager=manager,
                apply_chat_template=as_messages,
                system_instruction=config.system or None,
                random_seed=seed,
                numpy_random_seed=seed,
                torch_random_seed=seed,
                fewshot_random_seed=seed,
            )
        # What a task is wrong in, its data or its functions may raise anything.
        except (*_MISTAKES, TemplateError) as error:
            raise UserError(
                f"lm_eval: {', '.join(config.tasks)}: {type(error).__name__}: {first_line(error)}"
            ) from error
    if model.num_cut:
        context.note(f"{model.num_cut} prompts did not fit and were cut on the left")
    samples = dict(sorted(found["samples"].items()))
    report = {
        "layout": _LAYOUT,
        "policy": weights_digest(policy.model),
        "lm_eval": importlib.metadata.version("lm_eval"),
        "as_messages": as_messages,
        "template_sha256": sha256_of(template),
        "engine": config.engine.model_dump(mode="json"),
        "prompts_cut": model.num_cut,
        "tasks": {name: _told(name, found, each) for name, each in samples.items()},
        "groups": _groups(found, samples),
    }
    text = json.dumps(report, indent=1, sort_keys=True, allow_nan=False)
    outputs["report"].write_text(text + "\n", encoding="utf-8")
    write_table(_documents(samples), outputs["documents"], documents_schema())
    write_table(_samples(samples), outputs["samples"], samples_schema())
    return _metrics(report)


def _tasks(config: LmEvalConfig, scratch: Path) -> tuple[Any, list[Any]]:
    """The harness's list of tasks, and those that are asked: names, or what files say."""
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks._yaml_loader import load_yaml

    own = config.own_tasks()
    manager = TaskManager(include_defaults=len(own) < len(config.tasks))
    known = set(manager.all_tasks)
    asked: list[Any] = []
    for name in config.tasks:
        if name not in own:
            if name not in known:
                raise UserError(
                    f"lm_eval.tasks: lm-evaluation-harness has no task '{name}'; see: lm-eval ls"
                    " tasks"
                )
            asked.append(name)
            continue
        file = read_path(name)
        asked.append(_with_own_data(load_yaml(file), file.parent, scratch, where=name))
    return manager, asked


def _with_own_data(said: dict[str, Any], folder: Path, scratch: Path, *, where: str) -> Any:
    """A task of a YAML file, whose data lie from its folder on and are prepared in scratch."""
    if "task" not in said or "dataset_path" not in said:
        raise UserError(f"{where}: a task needs `task`, its name, and `dataset_path`")
    options = dict(said.get("dataset_kwargs") or {})
    if "data_files" in options:
        options["data_files"] = _found_from(folder, options["data_files"])
    options.setdefault("cache_dir", str(scratch / "datasets"))
    return said | {"dataset_kwargs": options}


def _found_from(folder: Path, files: Any) -> Any:
    """Files, spelled as `datasets` takes them: one, several, or by split."""
    if isinstance(files, Mapping):
        return {split: _found_from(folder, each) for split, each in files.items()}
    if isinstance(files, str):
        return files if "://" in files else str(folder / files)
    return [_found_from(folder, each) for each in files]


def _told(name: str, found: Mapping[str, Any], samples: Sequence[_Sample]) -> dict[str, Any]:
    """What a task was, by digests, and its figures."""
    said = dict(found["configs"][name])
    # Where data lie on this machine is no part of the task; what they are is in the documents.
    said.pop("dataset_kwargs", None)
    firsts = _by_document(samples)
    return {
        "version": found["versions"].get(name),
        "output_type": said.get("output_type"),
        "num_fewshot": found["n-shot"].get(name),
        "num_documents": len(firsts),
        "config_sha256": sha256_of(as_json(said)),
        "documents_sha256": sha256_of("\n".join(each["doc_hash"] for each in firsts)),
        "prompts_sha256": sha256_of("\n".join(each["prompt_hash"] for each in firsts)),
        "figures": _figures(found["results"][name], found["higher_is_better"][name], samples),
    }


def _figures(
    results: Mapping[str, Any], better: Mapping[str, Any], samples: Sequence[_Sample]
) -> dict[str, Any]:
    """Every metric by its name, and that of its filter where it is not the plain one."""
    figures = {}
    for key in sorted(results):
        metric, comma, kept = key.partition(",")
        value = _number(results[key])
        if not comma or metric.endswith("_stderr") or value is None:
            continue
        error = _number(results.get(f"{metric}_stderr,{kept}"))
        numbers = {
            int(each["doc_id"]): number
            for each in samples
            if each["filter"] == kept and (number := _number(each.get(metric))) is not None
        }
        figures[metric if kept == "none" else f"{metric}/{kept}"] = {
            "value": value,
            "stderr": error,
            "higher_is_better": better.get(metric),
        } | _interval(value, error, numbers)
    return figures


def _interval(
    value: float, error: float | None, numbers: Mapping[int, float]
) -> dict[str, float | None]:
    """A 95% interval: of a mean over documents, else by the harness's standard error."""
    found = score_interval([*numbers.values()], [*numbers], mean=value)
    if found is None and error is not None:
        found = value - _95 * error, value + _95 * error
    low, high = found or (None, None)
    return {"low": low, "high": high}


def _number(value: Any) -> float | None:
    """A finite number, numpy's too; None of words such as `N/A`, and of what counts several."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _groups(found: Mapping[str, Any], samples: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of groups, which the harness makes of those of their tasks."""
    groups = (found.get("groups") or {}).items()
    return {
        name: {"figures": _figures(each, found["higher_is_better"].get(name, {}), ())}
        for name, each in sorted(groups)
        if name not in samples
    }


def _by_document(samples: Sequence[_Sample]) -> list[_Sample]:
    """One sample of every document, in the documents' order: filters make several."""
    firsts = {each["doc_id"]: each for each in reversed(samples)}
    return [firsts[number] for number in sorted(firsts)]


def _document_id(task: str, sample: _Sample) -> str:
    return row_id("document", task, int(sample["doc_id"]), str(sample["doc_hash"]))


def _documents(samples: Mapping[str, Sequence[_Sample]]) -> pl.DataFrame:
    rows = [
        {
            "id": _document_id(task, each),
            "parents": [],
            "task": task,
            "number": int(each["doc_id"]),
            "document": as_json(each["doc"]),
        }
        for task, asked in samples.items()
        for each in _by_document(asked)
    ]
    return pl.DataFrame(rows, schema=documents_schema())


def _samples(samples: Mapping[str, Sequence[_Sample]]) -> pl.DataFrame:
    rows = []
    for task, asked in samples.items():
        for each in asked:
            document, prompt = _document_id(task, each), _prompt(each)
            responses, filtered = as_json(each["resps"]), as_json(each["filtered_resps"])
            scores = {name: each[name] for name in each["metrics"] if name in each}
            rows.append(
                {
                    "id": row_id("sample", document, each["filter"], prompt, responses),
                    "parents": [document],
                    "task": task,
                    "variant": each["filter"],
                    "prompt": prompt,
                    "target": str(each["target"]),
                    "responses": responses,
                    "filtered": filtered,
                    "scores": as_json(scores),
                }
            )
    return pl.DataFrame(rows, schema=samples_schema())


def _prompt(sample: _Sample) -> str:
    """What was asked; of a choice the context that all of its continuations follow."""
    return str(sample["arguments"][0][0])


def _metrics(report: Mapping[str, Any]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for name, told in {**report["tasks"], **report["groups"]}.items():
        for metric, figure in told["figures"].items():
            metrics[f"lm_eval/{name}/{metric}"] = figure["value"]
            if figure["stderr"] is not None:
                metrics[f"lm_eval/{name}/{metric}_stderr"] = figure["stderr"]
        if "num_documents" in told:
            metrics[f"lm_eval/{name}/num_documents"] = float(told["num_documents"])
    return metrics
