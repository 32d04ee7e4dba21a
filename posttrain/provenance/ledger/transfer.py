"""The ledger as JSON lines: one self-contained object per record, the same from any database."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TextIO

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
    """Write every record in the order of recording; returns their number, the header aside."""
    stream.write(_line({"kind": "ledger", "format": FORMAT}))
    count = 0
    for record in _records(ledger):
        stream.write(_line(record))
        count += 1  # noqa: SIM113 - the count outlives the loop
    return count


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
    if not parsed or not isinstance(parsed[0], int):
        raise UserError(f"{where} is not an exported ledger: its first line has no format number")
    known = _known(ledger)
    added = 0
    stages: list[StageRun] = []
    for record in parsed[1:]:
        if isinstance(record, StageRun):
            stages.append(record)
            continue
        added += _append(ledger, record, known)
    for start in range(0, len(stages), _BATCH):
        added += _append_stages(ledger, stages[start : start + _BATCH])
    return added


def _records(ledger: Ledger) -> Iterator[dict[str, Any]]:
    rows = ledger.store.query("SELECT id,status,process FROM runs")
    stored = {row.id: {"status": row.status, "process": row.process} for row in rows}
    for run in reversed(ledger.runs()):
        yield {"kind": "run", **asdict(run), **stored[run.id]}
    for stage_run in ledger.every_stage_run():
        yield {"kind": "stage_run", **_plain(stage_run), "metrics": _finite(stage_run.metrics)}
    for composition in ledger.compositions.all():
        whole = vars(composition.whole)
        yield {"kind": "composition", **_plain(composition), "whole": whole}
    for release in ledger.annotations.releases():
        yield {"kind": "release", **_plain(release)}
    for recall in ledger.annotations.every_recall():
        yield {"kind": "recall", **asdict(recall)}
    for verification in ledger.annotations.verifications():
        yield {"kind": "verification", **asdict(verification)}
    for adoption in ledger.annotations.adoptions().values():
        yield {"kind": "adoption", **asdict(adoption)}


def _plain(record: StageRun | Release | Composition) -> dict[str, Any]:
    """Fields as JSON types; `asdict` would copy the key's components, which are shared."""
    return {name: _plain_value(value) for name, value in vars(record).items()}


def _plain_value(value: object) -> object:
    if isinstance(value, tuple):
        return [vars(artifact) for artifact in value]
    return dict(value) if isinstance(value, Mapping) else value


def _finite(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """JSON has no NaN and no infinity: those travel as strings."""
    return {name: value if math.isfinite(value) else str(value) for name, value in metrics.items()}


def _line(record: Mapping[str, Any]) -> str:
    return canonical_json(record) + "\n"


_Said = Composition | Release | Recall | Verification | Adoption
_Record = tuple[Run, str] | StageRun | _Said | int


def _parse_all(lines: Iterable[str], where: str) -> list[_Record]:
    try:
        numbered = enumerate(lines, start=1)
        return [_parse(line, f"{where} line {number}") for number, line in numbered]
    except UnicodeDecodeError:
        raise UserError(
            f"{where} is not text; give a file from 'posttrain ledger export'"
        ) from None


def _parse(line: str, where: str) -> _Record:
    """One line as a record; a run comes with the process that ran it, the header as its format."""
    try:
        fields = json.loads(line)
        kind = fields.pop("kind")
        if kind == "ledger":
            return _format(fields["format"], where)
        if kind == "run":
            process = fields.pop("process")
            return Run(**fields), process
        if kind == "stage_run":
            return _stage_run(fields)
        if kind == "composition":
            return Composition(ArtifactRecord(**fields["whole"]), _artifacts(fields["parts"]))
        if kind == "release":
            return Release(**{**fields, "members": _artifacts(fields["members"])})
        if kind == "recall":
            return Recall(**{**fields, "cleared": tuple(fields["cleared"])})
        if kind == "verification":
            return Verification(**fields)
        if kind == "adoption":
            return Adoption(**{**fields, "differences": tuple(fields["differences"])})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{where} is damaged ({error}); export the ledger again") from None
    raise UserError(f"{where} is of unknown kind '{kind}'; a newer posttrain may have written it")


def _format(number: int, where: str) -> int:
    if number != FORMAT:
        raise UserError(
            f"{where}: format {number} is not known here; upgrade posttrain to import it"
        )
    return number


def _stage_run(fields: dict[str, Any]) -> StageRun:
    return StageRun(
        **{
            **fields,
            "inputs": _artifacts(fields["inputs"]),
            "outputs": _artifacts(fields["outputs"]),
            "metrics": {name: float(value) for name, value in fields["metrics"].items()},
        }
    )


def _artifacts(rows: Sequence[Mapping[str, Any]]) -> tuple[ArtifactRecord, ...]:
    return tuple(ArtifactRecord(**row) for row in rows)


def _known(ledger: Ledger) -> dict[str, str]:
    """Identity of every run, release and recall that is there, with a run's status."""
    runs = ledger.store.query("SELECT id,status FROM runs")
    known = {f"run {row.id}": row.status for row in runs}
    known |= {f"release {tag}": "" for tag in ledger.store.column("SELECT tag FROM releases")}
    known |= {f"recall {id_}": "" for id_ in ledger.store.column("SELECT id FROM recalls")}
    known |= {_identity(each): "" for each in ledger.compositions.all()}
    known |= {_name(each): "" for each in ledger.annotations.verifications()}
    known |= {f"adoption {subject}": "" for subject in ledger.annotations.adoptions()}
    return known


def _name(verification: Verification) -> str:
    return f"verification {verification.subject} {verification.level} {verification.verified:.6f}"


def _identity(composition: Composition) -> str:
    parts = sorted(f"{part.path} {part.digest}" for part in composition.parts)
    return " ".join(["composition", composition.whole.path, composition.whole.digest, *parts])


def _append(ledger: Ledger, record: _Record, known: Mapping[str, str]) -> int:
    if isinstance(record, tuple):
        return _append_run(ledger, *record, known.get(f"run {record[0].id}"))
    if isinstance(record, Composition) and _identity(record) not in known:
        ledger.compositions.add(record)
        return 1
    if isinstance(record, Release) and f"release {record.tag}" not in known:
        ledger.annotations.release(record)
        return 1
    if isinstance(record, Recall) and f"recall {record.id}" not in known:
        ledger.annotations.recall(record)
        return 1
    if isinstance(record, Verification) and _name(record) not in known:
        ledger.annotations.verify(record)
        return 1
    if isinstance(record, Adoption) and f"adoption {record.subject}" not in known:
        ledger.annotations.adopt(record)
        return 1
    return 0


def _append_run(ledger: Ledger, run: Run, process: str, status: str | None) -> int:
    if status is None:
        ledger.append_run(run, process=process)
        return 1
    if status == "running" and run.ended is not None:
        ledger.finish_run(
            run.id,
            run.status,
            run.ended,
            mlflow_run_id=run.mlflow_run_id,
            prefect_run_id=run.prefect_run_id,
        )
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
