"""The same curation written with `datasets.map` and `.filter`, a row at a time, as is usual.

It is also a second opinion: plain loops, exact comparison of every pair of a block, and the same
rows must go for the same reasons.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets

from posttrain.data.filters.length import LengthFilter
from tasks.curate.config import CurateConfig

_WORD = re.compile(r"[^\W\d_]+")
_SYMBOL = re.compile(r"""\d+(?:[.,]\d+)*|[^\w\s.,;:!?'"“”‘’`]|_""")
_TOKEN = re.compile(f"{_WORD.pattern}|{_SYMBOL.pattern}")
_SEPARATOR = re.compile(r"(?<=\d),(?=\d{3}\b)")


def curate(config: CurateConfig, inputs: dict[str, Path], outputs: dict[str, Path]) -> None:
    """Read the three tables, filter problems and traces, write what stays and what goes."""
    datasets.disable_caching()
    datasets.disable_progress_bars()
    problems = _load(inputs["problems"]).sort("id")
    heldout = _load(inputs["heldout"]).sort("id")
    traces = _load(inputs["traces"]).sort("id")

    problems, dropped = _filter_problems(config, problems, heldout)
    traces, dropped_traces = _filter_traces(config, traces, problems, dropped)
    problems.sort(["difficulty", "id"]).to_parquet(outputs["problems"])
    traces.sort(["difficulty", "id"]).to_parquet(outputs["traces"])
    dropped.to_parquet(outputs["dropped_problems"])
    dropped_traces.to_parquet(outputs["dropped_traces"])


def _filter(config: CurateConfig, label: str) -> Any:
    return next(f for f in (*config.problem_filters, *config.trace_filters) if f.label == label)


def _load(path: Path) -> datasets.Dataset:
    return datasets.Dataset.from_parquet(str(path), cache_dir=str(path.parent / "cache"))


def _filter_problems(config, problems, heldout):
    seen: set[str] = set()
    prompts = {_skeleton(prompt): 0 for prompt in heldout["prompt"]}
    steps = [
        lambda row: {"reason": _length(row["prompt"], _filter(config, "prompt_length"))},
        lambda row: {"reason": "" if row["answer"].strip() else "empty"},
        lambda row: {"reason": _repeats(seen, " ".join(row["prompt"].split()))},
    ]
    problems, dropped = _filter_each(problems, steps)
    asked = [_words(prompt) for prompt in heldout["prompt"]]
    template = _template(config, problems, asked)
    grams = {gram for words in asked for gram in _evidence(config, words, template)}

    def leaks(row):
        if _skeleton(row["prompt"]) in prompts:
            return {"reason": "evaluation_prompt"}
        shared = grams.intersection(_evidence(config, _words(row["prompt"]), template))
        return {"reason": "evaluation_ngram" if shared else ""}

    blocks: dict[tuple[str, str], list[set[tuple[str, ...]]]] = {}

    def near(row):
        return {"reason": "near_duplicate" if _is_near(config, blocks, row) else ""}

    problems, more = _filter_each(problems, [leaks, near])
    return problems, datasets.concatenate_datasets([dropped, more])


def _filter_traces(config, traces, problems, dropped):
    fates = {row["id"]: "problem_" + row["reason"] for row in dropped}
    fates |= dict.fromkeys(problems["id"], "")
    seen: set[str] = set()
    steps = [
        lambda row: {"reason": fates.get(row["problem_id"], "unknown_problem")},
        lambda row: {"reason": "" if row["verified"] else row["verdict"] or "unverified"},
        lambda row: {"reason": _length(row["text"], _filter(config, "text_length"))},
        lambda row: {"reason": _repeats(seen, row["problem_id"] + " ".join(row["text"].split()))},
    ]
    return _filter_each(traces.rename_column("reason", "verdict"), steps)


def _filter_each(table, steps):
    losses = []
    for step in steps:
        judged = table.map(step)
        losses.append(judged.filter(lambda row: row["reason"] != ""))
        table = judged.filter(lambda row: row["reason"] == "").remove_columns("reason")
    return table, datasets.concatenate_datasets(losses)


def _length(text: str, part: LengthFilter) -> str:
    size = len(text.strip())
    if size == 0:
        return "empty"
    return "too_short" if size < part.least else "too_long" if size > part.most else ""


def _repeats(seen: set[str], key: str) -> str:
    reason = "exact_duplicate" if key in seen else ""
    seen.add(key)
    return reason


def _plain(text: str) -> str:
    return _SEPARATOR.sub("", unicodedata.normalize("NFKC", text).lower())


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).lower())


def _skeleton(text: str) -> str:
    return " ".join(_TOKEN.findall(_plain(text)))


def _runs(words: list[str], size: int) -> Iterator[tuple[str, ...]]:
    return (tuple(words[i : i + size]) for i in range(len(words) - size + 1))


def _template(config, problems, asked):
    size = _filter(config, "contamination").ngram // 2
    counts: Counter[tuple[str, ...]] = Counter()
    for words in asked:
        counts.update(set(_runs(words, size)))
    known = set(counts)

    def count(row):
        counts.update(known.intersection(_runs(_words(row["prompt"]), size)))

    problems.map(count)
    return {
        run
        for run, number in counts.items()
        if number > _filter(config, "contamination").boilerplate
    }


def _evidence(config, words, template):
    size = _filter(config, "contamination").ngram // 2
    stays = [True] * len(words)
    for start, run in enumerate(_runs(words, size)):
        if run in template:
            stays[start : start + size] = [False] * size
    rest = [word for word, stay in zip(words, stays, strict=True) if stay]
    return set(_runs(rest, _filter(config, "contamination").ngram))


def _is_near(config, blocks, row):
    symbols = " ".join(_SYMBOL.findall(_plain(row["prompt"])))
    words = _words(row["prompt"])
    grams = set(_runs(words, _filter(config, "near_duplicates").shingle)) or {tuple(words)}
    block = blocks.setdefault((row["answer"].strip(), symbols), [])
    near = any(
        len(grams & other) >= _filter(config, "near_duplicates").similarity * len(grams | other)
        for other in block
    )
    block.append(grams)
    return near
