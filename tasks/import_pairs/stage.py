"""Read a file of pairs, check every row, and say what is in it."""

import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from posttrain.data.pair_files import read_pair_file
from posttrain.data.schemas import PAIRS
from posttrain.data.tables import write_table
from posttrain.stage.context import StageContext
from tasks.import_pairs.config import ImportPairsConfig


def run(
    config: ImportPairsConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Read, check and write the pairs."""
    source = config.source or Path(config.path).stem
    rows = read_pair_file(inputs["files.pairs"], source=source, ignore=config.ignore)
    pairs = rows.unique("id", keep="first", maintain_order=True)
    write_table(pairs, outputs["pairs"], PAIRS)
    counts = _counts(pairs) | {"duplicates": len(rows) - len(pairs)}
    outputs["report"].write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")
    if counts["contradictions"]:
        context.note(f"{counts['contradictions']} pairs stand in the other order too")
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
        "contradictions": both.height,
        "scored": gap.drop_nulls().len(),
        "scores_against_the_label": int((gap < 0).sum()),
    }
