"""Sections of old recipes that one renamed field does not bring to today's form.

Each function changes a copy of one section in place, and yields a clause for each change, in which
the section has the name that the recipe gives it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Rewrite = Callable[[dict[str, Any], str], Iterator[str]]

_NO_VALUE = object()


def rewrite_curate(section: dict[str, Any], name: str) -> Iterator[str]:
    """Turn the flat fields of 0.1 into changes of the filters that they were about.

    >>> section = {"prompt_chars": [1, 100], "require_verified": False}
    >>> list(rewrite_curate(section, "curate"))[0]
    'curate.prompt_chars is now curate.problem_filters.prompt_length'
    >>> section["trace_filters"]
    {'verified': None}
    """
    for old, (list_name, label, fields_of) in _FILTER_OF.items():
        value = section.pop(old, _NO_VALUE)
        if value is _NO_VALUE:
            continue
        filters = section.setdefault(list_name, {})
        fields = fields_of(value)
        if fields is None:
            filters[label] = None
        elif filters.get(label, {}) is not None:
            filters[label] = {**filters.get(label, {}), **fields}
        yield f"{name}.{old} is now {name}.{list_name}.{label}"


def rewrite_synthesize(section: dict[str, Any], name: str) -> Iterator[str]:
    """Give teacher and verifier their kinds with their settings; take hub fields from local files.

    >>> section = {"error_rate": 0.1, "sources": [{"verifier": "judge", "judge": {"accept": 8}}]}
    >>> for change in rewrite_synthesize(section, "synthesize"):
    ...     print(change)
    synthesize.error_rate is now synthesize.teacher.error_rate
    synthesize.sources.0.judge is now synthesize.sources.0.verifier
    >>> section["teacher"], section["sources"][0]["verifier"]
    ({'kind': 'programs', 'error_rate': 0.1}, {'kind': 'judge', 'accept': 8})
    """
    teacher = section.get("teacher", _NO_VALUE)
    if teacher is None:
        del section["teacher"]
        yield f"{name}.teacher: null is now left out"
    elif isinstance(teacher, dict) and "kind" not in teacher:
        section["teacher"] = {"kind": "server", **teacher}
        yield f"{name}.teacher is now of kind: server"
    if "error_rate" in section:
        rate = section.pop("error_rate")
        if section.setdefault("teacher", {"kind": "programs"}).get("kind") == "programs":
            section["teacher"] = {**section["teacher"], "error_rate": rate}
        yield f"{name}.error_rate is now {name}.teacher.error_rate"
    sources = section.get("sources")
    for number, source in enumerate(sources if isinstance(sources, list) else []):
        if isinstance(source, dict):
            yield from _rewrite_source(source, f"{name}.sources.{number}")


_OF_THE_HUB = ("revision", "split", "subset", "hub")
"""Fields that every file source took in 0.1, and that say nothing of a local file."""


def _rewrite_source(source: dict[str, Any], where: str) -> Iterator[str]:
    settings = source.pop("judge", None)
    if isinstance(settings, Mapping):
        if source.get("verifier", "judge") == "judge":
            source["verifier"] = {"kind": "judge", **settings}
        yield f"{where}.judge is now {where}.verifier"
    if source.get("kind") in ("jsonl", "parquet"):
        for name in [each for each in _OF_THE_HUB if each in source]:
            del source[name]
            yield f"{where}.{name} is left out, as a file has none"


def rewrite_rl(section: dict[str, Any], name: str) -> Iterator[str]:
    """Take an algorithm's correction for the engine apart: the old policy, and token weights.

    >>> section = {"algorithm": {"correction": {"old": "recomputed", "max_drift": 0.1}}}
    >>> for change in rewrite_rl(section, "rl"):
    ...     print(change)
    rl.algorithm.correction is now rl.algorithm.old_policy and rl.algorithm.token_weights
    >>> section["algorithm"]
    {'old_policy': 'recomputed', 'token_weights': {'drift': {'threshold': 0.1}}}
    """
    algorithm = section.get("algorithm")
    if not isinstance(algorithm, dict):
        return
    advantage = algorithm.get("advantage")
    if isinstance(advantage, dict) and advantage.get("turns", _NO_VALUE) is None:
        del advantage["turns"]
        yield f"{name}.algorithm.advantage.turns: null is now left out"
    correction = algorithm.pop("correction", None)
    if not isinstance(correction, Mapping):
        return
    if "old" in correction:
        old = correction["old"]
        algorithm["old_policy"] = "engine" if old == "sampler" else old
    weights = {new: correction[old] for old, new in _WEIGHT_OF.items() if old in correction}
    if (drift := correction.get("max_drift")) is not None:
        weights["drift"] = {"threshold": drift}
    if weights:
        algorithm["token_weights"] = {**weights, **algorithm.get("token_weights", {})}
    inside = f"{name}.algorithm"
    yield f"{inside}.correction is now {inside}.old_policy and {inside}.token_weights"


def state_opponent(section: dict[str, Any], name: str) -> Iterator[str]:
    """Set XPO's samples against the reference's, as its paper has it.

    >>> section = {"algorithm": "xpo", "rounds": 2}
    >>> list(state_opponent(section, "preference"))
    ['preference.opponent, left out, is reference where optimism is asked for']
    >>> section["opponent"]
    'reference'
    """
    algorithm = section.get("algorithm")
    named = algorithm.get("preset") if isinstance(algorithm, dict) else algorithm
    asked = isinstance(algorithm, dict) and algorithm.get("optimism_coefficient")
    if (named == "xpo" or asked) and "opponent" not in section:
        section["opponent"] = "reference"
        yield f"{name}.opponent, left out, is reference where optimism is asked for"


def state_draw(section: dict[str, Any], name: str) -> Iterator[str]:
    """State what `draw` meant of old: by solve rates, and without groups that teach nothing.

    >>> section = {"draw": {"sampler": "uniform"}}
    >>> list(state_draw(section, "rl"))
    ['rl.draw.train_on, left out, is signal']
    >>> section["draw"]
    {'sampler': 'uniform', 'train_on': 'signal'}
    """
    draw = section.setdefault("draw", {})
    if not isinstance(draw, dict):
        return
    for field, value in (("sampler", "solve_rate"), ("train_on", "signal")):
        if field not in draw:
            draw[field] = value
            yield f"{name}.draw.{field}, left out, is {value}"


_WEIGHT_OF = {"weights": "importance", "band": "band"}


def _bounds(value: Any) -> dict[str, Any]:
    least, most = value or (None, None)
    return {"least": least, "most": most}


def _kept(value: Any) -> dict[str, Any] | None:
    return {} if value else None


def _as(name: str, *, null_takes_out: bool = False) -> Callable[[Any], dict[str, Any] | None]:
    return lambda value: None if value is None and null_takes_out else {name: value}


_FILTER_OF: Mapping[str, tuple[str, str, Callable[[Any], dict[str, Any] | None]]] = {
    "prompt_chars": ("problem_filters", "prompt_length", _bounds),
    "trace_chars": ("trace_filters", "text_length", _bounds),
    "require_verified": ("trace_filters", "verified", _kept),
    "exact_duplicates": ("problem_filters", "exact_duplicates", _kept),
    "near_duplicate_similarity": (
        "problem_filters",
        "near_duplicates",
        _as("similarity", null_takes_out=True),
    ),
    "near_duplicate_shingle": ("problem_filters", "near_duplicates", _as("shingle")),
    "contamination_ngram": ("problem_filters", "contamination", _as("ngram")),
    "contamination_boilerplate": ("problem_filters", "contamination", _as("boilerplate")),
    "difficulty_range": ("problem_filters", "difficulty_range", _bounds),
    "max_per_bucket": ("problem_filters", "bucket_size", _as("most")),
    "max_traces_per_problem": ("trace_filters", "per_problem", _as("most")),
}

REWRITES: Mapping[str, Rewrite] = {
    "tasks.curate": rewrite_curate,
    "tasks.rl": rewrite_rl,
    "tasks.synthesize": rewrite_synthesize,
}
"""A task's package -> what brings its section to today's form; after renames and values."""

LEFT_OUT: Mapping[str, Rewrite] = {
    "tasks.preference": state_opponent,
    "tasks.rl": state_draw,
}
"""A task's package -> what states the defaults of old that are others today; before `REWRITES`."""
