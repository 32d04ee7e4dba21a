"""Ask each component about all answers at once, and write a row for each answer and component."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from posttrain.data.schemas import COMPLETIONS, IDENTITY, VERDICTS, Problem, with_row_ids
from posttrain.data.tables import read_table, write_table
from posttrain.learning.rewards.components.base import Answers, Component, Inquiry
from posttrain.learning.rewards.port_models import PortModels
from posttrain.learning.rewards.port_tables import PortTables, subject_of
from posttrain.learning.rewards.score import MANY_UNJUDGED
from posttrain.learning.rewards.verify import VerifierCache
from posttrain.learning.rollouts.scoring import read_problems
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import digest_path
from tasks.judge.config import JudgeConfig


def run(
    config: JudgeConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Read the answers, ask, write."""
    problems = read_problems(inputs["problems"], inputs.get("verifiers"))
    samples = read_table(inputs["samples"], COMPLETIONS)
    groups = _groups(samples, {problem.id: problem for problem in problems})
    models = PortModels(inputs, context.device)
    known = Inquiry(VerifierCache(), models=models, tables=PortTables(inputs))
    tables, metrics = [], {"judge/num_answers": float(len(samples))}
    for done, (name, part) in enumerate(config.components.items(), start=1):
        read = _read_by(part, inputs)
        table = _said(name, part, groups, known, read)
        tables.append(table)
        unjudged = table["score"].null_count() / len(table)
        metrics[f"judge/{name}/unjudged"] = unjudged
        if unjudged > MANY_UNJUDGED:
            context.note(f"component '{name}' could not judge {unjudged:.0%} of the answers")
        context.progress(done, len(config.components), unit="component")
    write_table(pl.concat(tables), outputs["verdicts"], VERDICTS)
    return metrics


def _groups(
    samples: pl.DataFrame, problems: Mapping[str, Problem]
) -> list[tuple[Answers, list[str]]]:
    """The answers of each problem, with the ids of their rows."""
    groups = []
    for (problem_id,), rows in samples.group_by("problem_id", maintain_order=True):
        problem = problems.get(str(problem_id))
        if problem is None:
            raise UserError(
                f"judge: problem {problem_id} of an answer is not among the problems; connect the"
                " table that the answers were drawn for"
            )
        texts = tuple(rows["text"])
        # Nobody who is asked goes by tokens.
        nothing = (0,) * len(texts), (False,) * len(texts)
        groups.append((Answers(problem, texts, *nothing), rows["id"].to_list()))
    if not groups:
        raise UserError("judge: there are no answers in the table; connect one with samples")
    return groups


def _said(
    name: str, part: Component, groups: list[tuple[Answers, list[str]]], known: Inquiry, read: str
) -> pl.DataFrame:
    """Rows of what one component says, each answer once."""
    found = part.score_all([group for group, _ in groups], known)
    rows = [
        {
            "parents": [row],
            "subject": subject_of(group.problem.id, text),
            "component": name,
            "criterion": "",
            "judge": part.judged_by(group.problem) + read,
            "draw": 0,
            "score": score,
            "reason": "not_judged" if score is None else "judged",
            "text": "",
        }
        for (group, ids), scores in zip(groups, found, strict=True)
        for text, row, score in zip(group.texts, ids, scores, strict=True)
    ]
    schema = {each: kind for each, kind in VERDICTS.items() if each != "id"}
    table = with_row_ids(pl.DataFrame(rows, schema=schema), IDENTITY["verdicts"])
    return table.unique("id", keep="first", maintain_order=True).select(VERDICTS.names())


def _read_by(part: Component, inputs: Mapping[str, Path]) -> str:
    """Tell a judge from others of its settings by what it was given: models, tables, answers."""
    # Who compares the answers of a group says so of this group.
    ports = [*part.ports(), *(["samples"] if part.SCOPE == "group" else [])]
    return "".join(f".{digest_path(inputs[port]).sha256[:16]}" for port in ports)
