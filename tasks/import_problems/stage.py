"""Read problems to evaluate on, and say what scores them."""

from collections.abc import Mapping
from pathlib import Path

from posttrain.data.schemas import PROBLEMS, Problem, problems_table
from posttrain.data.source_verifiers import scored_by_source, write_verifiers
from posttrain.data.sources.base import SourceRequest
from posttrain.data.tables import write_table
from posttrain.learning.rewards.references import refuse_unread_answers
from posttrain.learning.rewards.score import final_answer
from posttrain.learning.rewards.verify import metadata_for
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.slots import Part
from tasks.import_problems.config import ImportProblemsConfig


def run(
    config: ImportProblemsConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Read all sources, look at their answers, and write them with what scores them."""
    config.check_names("import_problems")
    problems: dict[str, Problem] = {}
    num_rows = 0
    for source in config.sources:
        rows = source.read(
            SourceRequest(
                seed=context.seed,
                # Of a generator, which draws both sides.
                num_problems=1,
                num_heldout=config.num_problems,
                heldout_fraction=1.0,
                scratch=context.scratch,
                path=inputs.get(f"files.{source.name}"),
                answer_of=lambda text: final_answer(text) or text,
                metadata_of=metadata_for,
            )
        )
        found = scored_by_source(source.in_context(rows), source).heldout
        if not found:
            raise UserError(
                f"import_problems: source '{source.name}' gives no problem to evaluate on; leave"
                " use: train out"
            )
        num_rows += len(found)
        problems |= {problem.id: problem for problem in found}
    refuse_unread_answers([*problems.values()])
    if len(problems) < num_rows:
        context.note(f"left out {num_rows - len(problems)} problems that stand there twice")
    write_table(problems_table([*problems.values()]), outputs["problems"], PROBLEMS)
    verifiers = {source.name: getattr(source, "verifier", None) for source in config.sources}
    named = {name: part for name, part in verifiers.items() if isinstance(part, Part)}
    write_verifiers(outputs["verifiers"], named)
    return {"import_problems/num_problems": float(len(problems))}
