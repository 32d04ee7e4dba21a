"""The ledger as JSON lines: one self-contained object per record, the same from any database."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

from posttrain.provenance.ledger.annotations import TRACKED
from posttrain.provenance.ledger.ledger import Ledger
from posttrain.provenance.ledger.records import (
    Adoption,
    ArtifactRecord,
    Composition,
    Recall,
    Release,
    Run,
    StageRun,
    Verification,
)
from posttrain.provenance.ledger.store import query_in
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import canonical_json

FORMAT = 1
_BATCH = 1000


def export_ledger(ledger: Ledger, stream: TextIO) -> int:
    """Write every record, as a line of JSON, in the order of recording.

    Args:
        ledger: What is exported.
        stream: A file open for text; a header goes first.

    Returns:
        Number of records, the header aside.

    """
    stream.write(_line({"kind": "ledger", "format": FORMAT}))
    count = 0
    for record in _records(ledger):
        stream.write(_line(record))
        count += 1  # noqa: SIM113 - the count outlives the loop
    return count


def export_stages(ledger: Ledger, stage_runs: Sequence[StageRun], stream: TextIO) -> None:
    """Write some stage runs, the runs that they belong to, and what their outputs carry inside.

    Args:
        ledger: What they are of.
        stage_runs: At least none; they keep their order.
        stream: A file open for text, which `import_ledger` reads.

    """
    stream.write(_line({"kind": "ledger", "format": FORMAT}))
    ids = list(dict.fromkeys(each.run_id for each in stage_runs))
    stored = _stored(ledger, ids)
    for run in filter(None, map(ledger.run, ids)):
        stream.write(_line({"kind": "run", **_plain(run), **stored[run.id]}))
    for stage_run in stage_runs:
        stream.write(_line(_stage_record(stage_run)))
    made = {output.digest for each in stage_runs for output in each.outputs}
    for composition in ledger.compositions.all():
        if composition.whole.digest in made:
            stream.write(_line({"kind": "composition", **_plain(composition)}))


def stage_runs_in(lines: Iterable[str], *, where: str) -> list[StageRun]:
    """Read the stage runs of an exported ledger.

    Args:
        lines: Its lines; none at all is an empty one.
        where: Name of the file, for errors.

    Returns:
        In the order of the lines.

    Raises:
        UserError: A line is damaged.

    """
    return [record for kind, record in _parse_all(lines, where) if kind == "stage_run"]


def import_ledger(ledger: Ledger, lines: Iterable[str], *, where: str) -> int:
    """Append what the ledger does not have yet.

    Every line is checked before the first is written, so a damaged file changes nothing.

    Args:
        ledger: The ledger to append to.
        lines: An exported ledger: a format number, then a record a line.
        where: Name of the file, for errors.

    Returns:
        How many records were new.

    Raises:
        UserError: A line is damaged, or it is no exported ledger.

    """
    parsed = _parse_all(lines, where)
    if not parsed or parsed[0][0] != "ledger":
        raise UserError(f"{where} is not an exported ledger: its first line has no format number")
    statuses = {row.id: row.status for row in ledger.store.query("SELECT id,status FROM runs")}
    known = {
        (kind, facts.name(each)) for kind, facts in _FACTS.items() for each in facts.every(ledger)
    }
    added = 0
    for kind, record in parsed:
        if kind == "run":
            run, process = record
            added += _append_run(ledger, run, process, statuses.get(run.id))
        elif kind in _FACTS and (kind, _FACTS[kind].name(record)) not in known:
            _FACTS[kind].append(ledger, record)
            added += 1
    stages = [record for kind, record in parsed if kind == "stage_run"]
    for start in range(0, len(stages), _BATCH):
        added += _append_stages(ledger, stages[start : start + _BATCH])
    return added


def _records(ledger: Ledger) -> Iterator[dict[str, Any]]:
    runs = ledger.runs()
    stored = _stored(ledger, [run.id for run in runs])
    for run in reversed(runs):
        yield {"kind": "run", **_plain(run), **stored[run.id]}
    for stage_run in ledger.every_stage_run():
        yield _stage_record(stage_run)
    for kind, facts in _FACTS.items():
        for record in facts.every(ledger):
            yield {"kind": kind, **_plain(record)}


def _stored(ledger: Ledger, run_ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """What stands of some runs: a killed one as running, with the process that it was."""
    sql = "SELECT id,status,process FROM runs WHERE id IN ({values})"
    rows = query_in(ledger.store, sql, run_ids)
    return {row.id: {"status": row.status, "process": row.process} for row in rows}


def _stage_record(stage_run: StageRun) -> dict[str, Any]:
    # JSON has no NaN and no infinity: those travel as strings.
    metrics = {
        name: value if math.isfinite(value) else str(value)
        for name, value in stage_run.metrics.items()
    }
    return {"kind": "stage_run", **_plain(stage_run), "metrics": metrics}


def _plain(record: object) -> dict[str, Any]:
    """Fields as JSON types; `asdict` would copy the key's components, which are shared."""
    return {name: _plain_value(value) for name, value in vars(record).items()}


def _plain_value(value: object) -> object:
    if isinstance(value, ArtifactRecord):
        return vars(value)
    if isinstance(value, tuple):
        return [_plain_value(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value


def _line(record: Mapping[str, Any]) -> str:
    return canonical_json(record) + "\n"


def _parse_all(lines: Iterable[str], where: str) -> list[tuple[str, Any]]:
    try:
        numbered = enumerate(lines, start=1)
        return [_parse(line, f"{where} line {number}") for number, line in numbered]
    except UnicodeDecodeError:
        raise UserError(
            f"{where} is not text; give a file from 'posttrain ledger export'"
        ) from None


def _parse(line: str, where: str) -> tuple[str, Any]:
    """One line as its kind and record; a run comes with the process that ran it."""
    try:
        fields = json.loads(line)
        kind = fields.pop("kind")
        if kind == "ledger":
            return kind, _known_format(fields["format"], where)
        if kind == "run":
            process = fields.pop("process")
            return kind, (Run(**fields), process)
        if kind == "stage_run":
            return kind, _stage_run(fields)
        if kind in _FACTS:
            return kind, _FACTS[kind].read(fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{where} is damaged ({error}); export the ledger again") from None
    raise UserError(f"{where} is of unknown kind '{kind}'; a newer posttrain may have written it")


def _known_format(number: int, where: str) -> int:
    if number != FORMAT:
        raise UserError(
            f"{where}: format {number} is not known here; upgrade posttrain to import it"
        )
    return number


def _stage_run(fields: dict[str, Any]) -> StageRun:
    metrics = {name: float(value) for name, value in fields["metrics"].items()}
    sides = {side: _artifacts(fields[side]) for side in ("inputs", "outputs")}
    return StageRun(**{**fields, **sides, "metrics": metrics})


def _artifacts(rows: Sequence[Mapping[str, Any]]) -> tuple[ArtifactRecord, ...]:
    return tuple(ArtifactRecord(**_renamed(row)) for row in rows)


def _renamed(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Verifiers are called judges in what 0.1 exported."""
    if (row["type"], row["role"]) != ("judge", "judge") or not row["path"].startswith("judge:"):
        return row
    path = row["path"].replace("judge:", "verifier:", 1)
    return {**row, "type": "verifier", "role": "verifier", "path": path}


def _append_run(ledger: Ledger, run: Run, process: str, status: str | None) -> int:
    if status is None:
        ledger.append_run(run, process=process)
        return 1
    if status == "running" and run.ended is not None:
        ids = {"mlflow_run_id": run.mlflow_run_id, "prefect_run_id": run.prefect_run_id}
        ledger.finish_run(run.id, run.status, run.ended, **ids)
    return 0


def _append_stages(ledger: Ledger, stages: Sequence[StageRun]) -> int:
    sql = "SELECT id,mlflow_run_id FROM stage_runs WHERE id IN ({values})"
    known: dict[str, str | None] = dict(query_in(ledger.store, sql, [stage.id for stage in stages]))
    new = [stage for stage in stages if stage.id not in known]
    ledger.record(*new)
    late = {stage.id: stage.mlflow_run_id for stage in stages if known.get(stage.id, "") is None}
    ledger.annotations.note(
        TRACKED, {each: name for each, name in late.items() if name is not None}
    )
    return len(new)


class _Facts(NamedTuple):
    """What is said of records, of one kind: how it is listed, named, read and appended."""

    every: Callable[[Ledger], Iterable[Any]]
    name: Callable[[Any], object]
    read: Callable[[dict[str, Any]], Any]
    append: Callable[[Ledger, Any], None]


_FACTS: Mapping[str, _Facts] = {
    "composition": _Facts(
        lambda ledger: ledger.compositions.all(),
        lambda each: (each.whole.path, each.whole.digest, _names(each.parts)),
        lambda row: Composition(ArtifactRecord(**row["whole"]), _artifacts(row["parts"])),
        lambda ledger, each: ledger.compositions.add(each),
    ),
    "release": _Facts(
        lambda ledger: ledger.annotations.releases(),
        lambda each: each.tag,
        lambda row: Release(**{**row, "members": _artifacts(row["members"])}),
        lambda ledger, each: ledger.annotations.release(each),
    ),
    "recall": _Facts(
        lambda ledger: ledger.annotations.every_recall(),
        lambda each: each.id,
        lambda row: Recall(**{**row, "cleared": tuple(row["cleared"])}),
        lambda ledger, each: ledger.annotations.recall(each),
    ),
    "verification": _Facts(
        lambda ledger: ledger.annotations.verifications(),
        lambda each: (each.subject, each.level, f"{each.verified:.6f}"),
        lambda row: Verification(**row),
        lambda ledger, each: ledger.annotations.verify(each),
    ),
    "adoption": _Facts(
        lambda ledger: ledger.annotations.adoptions().values(),
        lambda each: each.subject,
        lambda row: Adoption(**{**row, "differences": tuple(row["differences"])}),
        lambda ledger, each: ledger.annotations.adopt(each),
    ),
}


def _names(parts: Iterable[ArtifactRecord]) -> tuple[str, ...]:
    return tuple(sorted(f"{part.path} {part.digest}" for part in parts))
