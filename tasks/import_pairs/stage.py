"""Read files of pairs, check every row, and say what is in it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from posttrain.data.brought import BroughtRows, bring
from posttrain.data.brought_tables import judged_table
from posttrain.data.pair_files import read_pair_file
from posttrain.data.schemas import DROPPED, PAIRS
from posttrain.data.tables import write_table
from posttrain.data.wanted_rows import JUDGED
from posttrain.stage.context import StageContext
from tasks.import_pairs.config import ImportPairsConfig

if TYPE_CHECKING:
    from posttrain.data.formats.forms import JudgedAnswers


def run(
    config: ImportPairsConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Read, check and write the pairs."""
    found: BroughtRows[JudgedAnswers] = BroughtRows()
    if config.path:
        source = config.source or Path(config.path).stem
        path = inputs["files.pairs"]
        rows = read_pair_file(path, source=source, ignore=config.ignore, name=config.path)
    else:
        found = bring(config.sources, inputs, JUDGED, heldout_fraction=config.heldout_fraction)
        rows = judged_table(found.rows)
        context.note(found.told_of_sides())
    for name, reading in found.readings.items():
        context.note(f"{name} is read as {reading}")
    pairs = rows.unique("id", keep="first", maintain_order=True)
    write_table(pairs, outputs["pairs"], PAIRS)
    write_table(found.dropped(), outputs["dropped"], DROPPED)
    counts = _counts(pairs) | {
        "duplicates": len(rows) - len(pairs),
        "left_out": len(found.unfit),
    }
    report = counts | ({} if config.path else {"sources": found.counts()})
    outputs["report"].write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    if counts["contradictions"]:
        context.note(f"{counts['contradictions']} pairs stand in the other order too")
    if found.unfit:
        context.note(f"left out {len(found.unfit)} rows: {found.reasons()}")
    return {f"import_pairs/{name}": float(count) for name, count in counts.items()}


def _counts(pairs: pl.DataFrame) -> dict[str, int]:
    """How many there are, of how many problems, and what of them speaks against itself."""
    changed_over = pairs.select("problem_id", chosen="rejected", rejected="chosen")
    both = pairs.join(changed_over, on=["problem_id", "chosen", "rejected"], how="semi")
    gap = pairs["chosen_score"] - pairs["rejected_score"]
    return {
        "pairs": len(pairs),
        "problems": pairs["problem_id"].n_unique(),
        "heldout": pairs.filter(split="heldout").height,
        "judged_alone": pairs.filter((pl.col("chosen") == "") | (pl.col("rejected") == "")).height,
        "contradictions": both.height,
        "scored": gap.drop_nulls().len(),
        "scores_against_the_label": int((gap < 0).sum()),
    }
