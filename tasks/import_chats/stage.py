"""Read files of conversations, and lay out what is to be learned of them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from posttrain.data.brought import bring
from posttrain.data.brought_tables import taught_table
from posttrain.data.chat_templates.unwritten import LeftOut
from posttrain.data.formats.forms import Form, TaughtAnswer, Unfit
from posttrain.data.schemas import COMPLETIONS, DROPPED
from posttrain.data.tables import write_table
from posttrain.data.wanted_rows import TAUGHT, Wanted
from posttrain.learning.models.load import load_tokenizer
from posttrain.stage.context import StageContext
from tasks.import_chats.config import ImportChatsConfig


def run(
    config: ImportChatsConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Read, convert, part and write."""
    wanted = _written_by(inputs["policy"]) if "policy" in inputs else TAUGHT
    found = bring(config.sources, inputs, wanted, heldout_fraction=config.heldout_fraction)
    for name, reading in found.readings.items():
        context.note(f"{name} is read as {reading}")
    context.note(found.told_of_sides())
    sides = {
        side: taught_table([row for row in found.rows if row.side == side])
        for side in ("train", "heldout")
    }
    write_table(sides["train"], outputs["traces"], COMPLETIONS)
    write_table(sides["heldout"], outputs["heldout"], COMPLETIONS)
    write_table(found.dropped(), outputs["dropped"], DROPPED)
    counts = found.counts()
    outputs["report"].write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")
    if found.unfit:
        context.note(f"left out {len(found.unfit)} rows: {found.reasons()}")
    return {
        "import_chats/num_rows": float(len(sides["train"])),
        "import_chats/num_heldout": float(len(sides["heldout"])),
        "import_chats/num_left_out": float(len(found.unfit)),
    }


def _written_by(model: Path) -> Wanted[TaughtAnswer]:
    """Take the rows that the chat template of a model writes whole."""
    left_out = LeftOut(load_tokenizer(model))

    def take(form: Form) -> TaughtAnswer:
        taught = form.taught()
        if reason := left_out.of(taught.prompt, taught.context, taught.answer):
            raise Unfit(reason)
        return taught

    return replace(TAUGHT, take=take)
