"""What a random player and the script earn in every world, as it stands.

    python -m benchmarks.play.bounds            all of them
    python -m benchmarks.play.bounds guess      this one; what was measured of others is kept

Writes bounds.json and the table of docs/worlds.md. A world is posed 200 problems with its default
settings, and each is played by both. In a world of several roles they play the policy's, and the
script all others. A world that needs what is not installed keeps the figures that it has.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import torch

from benchmarks.sampling.machine import described
from posttrain.learning.episodes.environments.base import POLICY
from posttrain.learning.episodes.posed import By, lacking, posed_problem, speaking, worlds
from posttrain.learning.episodes.script import play_script
from posttrain.learning.episodes.worlds.base import World
from posttrain.learning.maths.intervals import clustered_mean_interval
from posttrain.pipeline.slots import first_sentence

ROOT = Path(__file__).parents[2]
FIGURES = Path(__file__).with_name("bounds.json")
PAGE = ROOT / "docs/worlds.md"
HEADING = ("kind", "what", "turns", "size", "random", "script", "source")
PLAYERS: tuple[By, ...] = ("random", "script")
_MOST_TURNS = 1000


def measured(world: World, problems: int) -> dict[str, Any]:
    """Play a world's problems by both players.

    Args:
        world: With its settings.
        problems: How many, from seed 0.

    Returns:
        Settings, seconds, the most turns of an episode, and for each player the mean score with
        the ends of its 95% interval, the share that was solved and the episodes that failed.

    """
    began = time.perf_counter()
    told: dict[str, Any] = {
        "problems": problems,
        "settings": world.model_dump(mode="json", exclude={"kind"}),
    }
    most = 0
    for by in PLAYERS:
        scores, failed = [], 0
        for seed in range(problems):
            speak = speaking(world, by, Random(seed))
            problem = posed_problem(world, seed)
            episode = play_script(world, problem, speak, seed=seed, most_turns=_MOST_TURNS)
            most = max(most, len(episode.log))
            if episode.end == "failed":
                failed += 1
            else:
                scores.append(sum(episode.earned(POLICY)))
        told[by] = {**_summed(scores), "failed": failed}
    return {**told, "turns": most, "seconds": round(time.perf_counter() - began, 1)}


def _summed(scores: Sequence[float]) -> dict[str, Any]:
    if not scores:
        return {"mean": None}
    interval = clustered_mean_interval(torch.tensor(scores), torch.arange(len(scores)))
    mean, low, high = (round(float(each), 4) for each in interval)
    solved = sum(score > 1 - 1e-9 for score in scores) / len(scores)
    return {"mean": mean, "low": low, "high": high, "solved": round(solved, 4)}


def table(figures: Mapping[str, Any]) -> list[str]:
    """Write the table of the worlds, a row for every registered one.

    Args:
        figures: Of `measured`, by kind; a world that has none is shown without.

    Returns:
        Lines of Markdown.

    """
    lines = [f"| {' | '.join(HEADING)} |", "|---" * len(HEADING) + "|"]
    for kind, world in worlds().items():
        known = figures.get(kind, {})
        means = [known.get(by, {}).get("mean") for by in PLAYERS]
        cells = [
            f"`{kind}`",
            first_sentence(world.__doc__ or "").removesuffix("."),
            str(known.get("turns", "")),
            ", ".join(f"`{name}`" for name in world.SIZES),
            *("" if mean is None else f"{mean:.2f}" for mean in means),
            " ".join(world.SOURCE.split()),
        ]
        lines.append("|" + "".join(f" {cell.replace('|', '/')} |" for cell in cells))
    return lines


def with_table(page: str, lines: Sequence[str]) -> str:
    """Put the table in the place of the one that a page has.

    Args:
        page: Markdown, with a table of the same heading.
        lines: Of the new table.

    Returns:
        The page with it.

    """
    told = page.split("\n")
    begin = told.index(lines[0])
    end = next(at for at in range(begin, len(told)) if not told[at].startswith("|"))
    return "\n".join([*told[:begin], *lines, *told[end:]])


def main() -> None:
    """Measure, and write both files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kinds", nargs="*", metavar="NAME", help="Measure only these worlds.")
    parser.add_argument("--problems", type=int, default=200)
    asked = parser.parse_args()
    known = worlds()
    if strange := sorted({*asked.kinds} - known.keys()):
        parser.error(f"there is no world {strange[0]}; there are {', '.join(known)}")
    figures = json.loads(FIGURES.read_text())["worlds"] if FIGURES.exists() else {}
    for kind in asked.kinds or known:
        if missing := lacking(known[kind]):
            print(f"{kind}: not measured, it needs {missing[0].what}; {missing[0].remedy}")
            continue
        if asks := [name for name, each in known[kind].model_fields.items() if each.is_required()]:
            print(f"{kind}: not measured, what it plays is set by {', '.join(asks)}")
            continue
        today = datetime.now(UTC).date().isoformat()
        found = measured(known[kind].parse({"kind": kind}, where=kind), asked.problems)
        figures[kind] = {"date": today, **found}
        means = ", ".join(f"{by} {found[by]['mean']}" for by in PLAYERS)
        print(f"{kind}: {means} ({found['seconds']} s)", flush=True)
    kept = {kind: figures[kind] for kind in known if kind in figures}
    FIGURES.write_text(json.dumps({"machine": described(1), "worlds": kept}, indent=2) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), table(kept)))


if __name__ == "__main__":
    main()
