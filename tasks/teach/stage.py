"""Encode the rows as the student will learn them, ask the teacher, keep what it says."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from posttrain.data.contexts import prompts_of
from posttrain.data.rows import TokenRow, encode_rows
from posttrain.data.schemas import COMPLETIONS
from posttrain.data.soft_targets import (
    TaughtRow,
    TeacherSaid,
    learned_places,
    soft_targets_schema,
    soft_targets_table,
)
from posttrain.data.tables import read_table, write_table
from posttrain.learning.models.load import load_tokenizer
from posttrain.learning.training.teachers import RowTeacher, open_teacher
from posttrain.learning.training.token_batches import fitting
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.teach.config import TeachConfig

_COLUMNS = ["id", "prompt", "text", "context"]


def run(
    config: TeachConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Read the rows, ask in portions, write a table."""
    table = read_table(inputs["rows"], COMPLETIONS, columns=_COLUMNS)
    if table.is_empty():
        raise UserError("teach: there are no rows in the table; connect one with answers")
    # Equal content has one id, and is asked about once.
    table = table.unique("id", keep="first", maintain_order=True)
    tokenizer = load_tokenizer(inputs["policy"])
    config.template.give_to(tokenizer, where="teach")
    if config.top_k > len(tokenizer):
        raise UserError(
            f"teach.top_k: {config.top_k} tokens are asked for, and the tokenizer has"
            f" {len(tokenizer)}; set it to that or less"
        )
    prompts, texts = prompts_of(table), table["text"].to_list()
    encoded = encode_rows(tokenizer, prompts, texts, turns=config.turns)
    teacher = open_teacher(
        inputs.get("teacher"),
        config.endpoint,
        tokenizer,
        precision=config.precision,
        batch_tokens=config.batch_tokens,
        device=context.device,
    )
    most = config.max_length or teacher.context_length
    kept = fitting(encoded, max_length=most, where="teach")
    if len(kept) < len(encoded):
        context.note(f"left out {len(encoded) - len(kept)} rows over {most} tokens")
    ids = table["id"].gather(kept).to_list()
    said = TeacherSaid(teacher.name, config.temperature, config.top_k)
    frame, nll = _asked(teacher, ids, [encoded[index] for index in kept], said, config, context)
    write_table(frame, outputs["targets"], soft_targets_schema())
    rest = frame["rest_logprobs"].explode().exp()
    return {
        "teach/num_rows": float(len(frame)),
        "teach/num_too_long": float(len(encoded) - len(kept)),
        "teach/num_tokens": float(len(rest)),
        "teach/covered": 1.0 - float(rest.to_numpy().mean()),
        "teach/nll": nll,
    }


def _asked(
    teacher: RowTeacher,
    ids: Sequence[str],
    rows: Sequence[TokenRow],
    said: TeacherSaid,
    config: TeachConfig,
    context: StageContext,
) -> tuple[pl.DataFrame, float]:
    """Ask portion by portion; those that a killed attempt has kept are read again.

    Returns:
        The table, and the mean of `-log p` of the rows' own tokens by the teacher.

    """
    portions: list[pl.DataFrame] = []
    for begin in range(0, len(rows), config.rows_at_once):
        part = rows[begin : begin + config.rows_at_once]
        end = begin + len(part)
        path = context.scratch / f"taught-{begin:09d}-{end:09d}.parquet"
        if not path.exists():
            asked = teacher.ask(part, top_k=said.top_k, temperature=said.temperature)
            taught = [
                TaughtRow(row.ids, learned_places(row), targets)
                for row, (targets, _) in zip(part, asked, strict=True)
            ]
            own = [[float(each) for each in logprobs_N] for _, logprobs_N in asked]
            frame = soft_targets_table(ids[begin:end], taught, said)
            kept = frame.with_columns(own=pl.Series(own, dtype=pl.List(pl.Float64)))
            _write(kept, path)
        portions.append(pl.read_parquet(path))
        context.progress(end, len(rows), unit="row")
    whole = pl.concat(portions)
    return whole.drop("own"), -float(whole["own"].explode().to_numpy().mean())


def _write(frame: pl.DataFrame, path: Path) -> None:
    from posttrain.stage.files import replacing

    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        frame.write_parquet(partial)
