"""A rollout token by token, with all that is known of every token; a completion as messages."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from posttrain.cli.page.catalog import maker_of
from posttrain.cli.page.project import Project
from posttrain.data.contexts import PromptContext
from posttrain.provenance.ledger import ArtifactRecord, Ledger
from posttrain.provenance.lineage.tables import Table, collected

_Decode = Callable[[Sequence[int]], str]
_BROKEN = "\N{REPLACEMENT CHARACTER}"
_LONGEST_CHARACTER = 4
"""Tokens of bytes that one character may take."""


@dataclass(frozen=True)
class RolloutToken:
    """One token; of one that was only read nothing but its number and text is known."""

    id: int
    text: str
    logprob: float | None = None
    advantage: float | None = None
    reward: float | None = None
    """Paid for this token alone; None where rewards are paid for whole answers."""
    entropy: float | None = None
    """Of the policy here, before the step learned, in nats; None where it was not kept."""


@dataclass(frozen=True)
class RolloutSpan:
    """Tokens of one turn, all drawn by the role or all read by it."""

    turn: int
    role: str
    drawn: bool
    learned: bool
    """Whether they bear loss: they were drawn, and the rollout was trained on."""
    tokens: tuple[RolloutToken, ...]
    version: int | None = None
    """Of the policy that drew them."""
    earned: float | None = None
    """What the environment paid for the turn."""


def spans_by_token(row: Mapping[str, Any], decode: _Decode | None) -> Iterator[RolloutSpan]:
    """Give the spans of a rollout with all that is known of their tokens.

    Args:
        row: Of ROLLOUTS.
        decode: Makes text of tokens; None shows their numbers.

    Yields:
        What was read and what was drawn, in order.

    """
    turns, drawn, number = row["turns"] or (), 0, 0
    for place, span in enumerate(row["spans"]):
        ids = row["token_ids"][span["begin"] : span["end"]]
        texts = token_texts(ids, decode)
        if not span["drawn"]:
            tokens = tuple(map(RolloutToken, ids, texts))
            yield RolloutSpan(span["turn"], row["role"], False, False, tokens)
            continue
        columns = [
            # Tables of before entropies were kept have no such column.
            row[name][drawn : drawn + len(ids)] if row.get(name) else [None] * len(ids)
            for name in ("logprobs", "advantages", "token_rewards", "entropies")
        ]
        later = row["spans"][place + 1 :]
        ends = not any(each["turn"] == span["turn"] for each in later)
        paid = turns[span["turn"]] if ends and span["turn"] < len(turns) else None
        yield RolloutSpan(
            span["turn"],
            row["role"],
            drawn=True,
            learned=bool(row["trained"]),
            tokens=tuple(map(RolloutToken, ids, texts, *columns)),
            version=row["versions"][number] if number < len(row["versions"]) else None,
            earned=paid["earned"] if paid else None,
        )
        drawn, number = drawn + len(ids), number + 1


def token_texts(ids: Sequence[int], decode: _Decode | None) -> list[str]:
    """Make text of every token for itself.

    Args:
        ids: The tokens, in order.
        decode: Makes text of tokens; None gives their numbers.

    Returns:
        A text each. Of tokens that are bytes of one character the last has it, and the others
        have nothing.

    """
    if decode is None:
        return [f"{token} " for token in ids]
    texts: list[str] = []
    while len(texts) < len(ids):
        begin = len(texts)
        one = decode(ids[begin : begin + 1])
        length = 1
        while _BROKEN in one and length < min(_LONGEST_CHARACTER, len(ids) - begin):
            length += 1
            one = decode(ids[begin : begin + length])
        if _BROKEN in one:
            length, one = 1, decode(ids[begin : begin + 1])
        texts += [""] * (length - 1) + [one]
    return texts


def decoder_for(project: Project, ledger: Ledger, record: ArtifactRecord) -> _Decode | None:
    """Find what makes text of the tokens of a table of rollouts.

    Args:
        project: Where policies lie.
        ledger: That knows which policy was made or read beside the table.
        record: The table.

    Returns:
        A decoder by the tokenizer of the policy that was trained on it, else of the one that it
        began from; None where neither is there.

    """
    stage_run = maker_of(ledger, record)
    records = (*stage_run.outputs, *stage_run.inputs) if stage_run else ()
    for model in records:
        if model.type == "checkpoint" and (file := project.file_in(model, "tokenizer.json")):
            return _decoder_of(file)
    return None


@cache
def _decoder_of(file: Path) -> _Decode:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False))


def problem_of(
    project: Project, ledger: Ledger, record: ArtifactRecord, problem_id: str
) -> dict[str, Any] | None:
    """Find the problem that a row answers, in a table that its stage read.

    Args:
        project: Where tables lie.
        ledger: That knows what the stage read.
        record: The row's table.
        problem_id: Of the problem.

    Returns:
        The row of PROBLEMS; None where it is not there.

    """
    stage_run = maker_of(ledger, record)
    for read in stage_run.inputs if stage_run else ():
        file = project.file(read) if read.type == "problems" else None
        if file is not None:
            rows = pl.scan_parquet(file).filter(pl.col("id") == problem_id).head(1).collect()
            if rows.height:
                return rows.row(0, named=True)
    return None


def group_of(table: Table, row: Mapping[str, Any]) -> pl.DataFrame:
    """Read the rollouts that a rollout was compared with, it among them.

    Args:
        table: Of rollouts.
        row: One of them.

    Returns:
        The rows of its step and group by the same role, with their numbers as `number`.

    """
    same = (
        (pl.col("step") == row["step"])
        & (pl.col("group") == row["group"])
        & (pl.col("role") == row["role"])
    )
    rows = pl.scan_parquet(table.file, row_index_name="number").filter(same)
    return collected(rows, table)


def history_of(table: Table, problem_id: str) -> pl.DataFrame:
    """Read all rollouts of a problem.

    Args:
        table: Of rollouts.
        problem_id: Of the problem.

    Returns:
        `number`, `step`, `group`, `reward`, `solved`, `tokens` and `text`, by step.

    """
    columns = ["number", "step", "group", "role", "reward", "solved", "text"]
    tokens = pl.col("logprobs").list.len().alias("tokens")
    rows = pl.scan_parquet(table.file, row_index_name="number")
    rows = rows.filter(pl.col("problem_id") == problem_id).select(*columns, tokens)
    return collected(rows.sort("step", "group", "number"), table)


def messages_of(row: Mapping[str, Any]) -> list[dict[str, str]]:
    """Lay a row out as messages.

    Args:
        row: Of COMPLETIONS: with `prompt` and `text`, and perhaps `context`.

    Returns:
        `role` and `content` of each message, the row's own text last.

    """
    asked = PromptContext.read(row.get("context") or "").messages(row["prompt"])
    told = [*asked, {"role": "assistant", "content": row["text"]}]
    return [{"role": str(each["role"]), "content": str(each["content"])} for each in told]
