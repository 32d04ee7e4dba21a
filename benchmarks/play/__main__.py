"""What a miniature policy learns by playing: success before and after RL, seed by seed.

    python -m benchmarks.play calculator --seeds 0 1 2
    python -m benchmarks.play                      the table and the picture anew, nothing is run

For each NAME and seed, recipes/play-NAME is run by `posttrain run --local` in a fresh copy of this
project, with one thread a stage; success is pass@1 on the held-out problems that the recipe's
evaluation plays. Bounds are of the world as the recipe sets it, by `benchmarks.play.bounds`. Writes
figures.json, README.md and success.svg here. The contract of an arena is that SFT solves 20% to
70%; that RL is better, that it has at least 10 points more and that the intervals are disjoint.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks.play.bounds import PLAYERS, ROOT, measured
from benchmarks.play.picture import drawn
from benchmarks.sampling.machine import described
from posttrain.learning.episodes.posed import worlds
from posttrain.learning.maths.decision import paired_interval
from posttrain.pipeline.recipe_file import read_yaml

HERE = Path(__file__).parent
FIGURES, PAGE, PICTURE = (HERE / name for name in ("figures.json", "README.md", "success.svg"))
POLICIES = ("base", "sft", "rl")
CONTRACT = (0.2, 0.7)
LEAST_GAIN = 0.1
_PROBLEMS = 200
_BEGIN, _END = "<!-- figures -->", "<!-- end of figures -->"


def run_seed(name: str, seed: int, *, keep: Path | None) -> dict[str, Any]:
    """Run a recipe once in a copy of the project.

    Args:
        name: Of recipes/play-NAME.
        seed: Of the run.
        keep: Folder that the copy's recipe, with its report page, is copied to; None keeps nothing.

    Returns:
        Seconds, and success of each policy with the ends of its 95% interval; for RL, the paired
        difference to its parent too.

    Raises:
        SystemExit: The run failed; its output is shown.

    """
    with tempfile.TemporaryDirectory(prefix="play-") as folder:
        root = Path(folder) / "project"
        copy_project(root)
        recipe = root / "recipes" / f"play-{name}"
        set_seed(recipe / "recipe.yaml", seed)
        began = time.perf_counter()
        ended = subprocess.run(
            [sys.executable, "-m", "posttrain", "run", f"recipes/play-{name}", "--local"],
            cwd=root,
            env={**os.environ, "POSTTRAIN_TRACKING": "off", "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - began
        if ended.returncode:
            raise SystemExit(f"{name}, seed {seed}: {ended.stdout[-2000:]}{ended.stderr[-4000:]}")
        if keep is not None:
            shutil.copytree(recipe, keep / f"{name}-{seed}", dirs_exist_ok=True)
        (report,) = recipe.glob("data/evaluate/report*")
        return {"seconds": round(seconds, 1), **success(json.loads(report.read_text()))}


def copy_project(root: Path) -> None:
    """Copy what git knows or would take of this project, without what stages have made."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)
    # A project is a repository.
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)


def set_seed(recipe: Path, seed: int) -> None:
    """Write the seed into the section `run` of a recipe, which has one of a line."""
    text, count = re.subn(r"^run: \{", f"run: {{seed: {seed}, ", recipe.read_text(), flags=re.M)
    if count != 1:
        raise SystemExit(f"{recipe}: write its section run as `run: {{threads: 1}}`")
    recipe.write_text(text)


def success(report: Mapping[str, Any]) -> dict[str, Any]:
    """Read what each policy solves at the first try, and what RL gained, from an evaluation."""
    known = {policy["name"]: policy for policy in report["policies"]}
    told: dict[str, Any] = {
        name: _interval(known[name]["pass_at"][0]) for name in POLICIES if name in known
    }
    change = known["rl"]["change"]
    assert change["parent"] == "sft"
    return {**told, "gain": _interval(change["difference"]), "problems": report["num_problems"]}


def _interval(estimate: Mapping[str, float]) -> list[float]:
    return [round(estimate[name], 4) for name in ("value", "low", "high")]


def bounds_of(name: str) -> dict[str, Any]:
    """Measure the random player and the script in the world of a recipe, with its settings."""
    recipe = read_yaml(ROOT / f"recipes/play-{name}/recipe.yaml")
    (source,) = recipe["synthesize"]["sources"]
    given = source["world"]
    settings = {"kind": given} if isinstance(given, str) else dict(given)
    world = worlds()[settings["kind"]].parse(settings, where="world")
    told = measured(world, _PROBLEMS)
    return {"world": settings, **{by: told[by] for by in PLAYERS}}


def verdict(seed: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether the arena's contract is held, and whether RL is better by what is asked."""
    low, high = CONTRACT
    (sft, _, sft_high), (_, rl_low, _) = seed["sft"], seed["rl"]
    return low <= sft <= high, seed["gain"][0] >= LEAST_GAIN and sft_high < rl_low


def lines(figures: Mapping[str, Any]) -> Iterator[str]:
    """Write the table: a row for each recipe and seed, then what RL gained over the seeds."""
    head = ("recipe", "size", "random", "script", "seed", "base", "SFT", "RL", "RL over SFT",
            "contract", "RL better", "seconds")  # fmt: skip
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for name, each in figures.items():
        settings = ", ".join(f"{k} {v}" for k, v in each["world"].items() if k != "kind")
        bounds = [f"{each[by]['solved']:.0%}" for by in PLAYERS]
        for seed, told in each["seeds"].items():
            held, better = verdict(told)
            cells = [
                f"[{name}](../../recipes/play-{name})",
                settings or "as it stands",
                *bounds,
                seed,
                *(_share(told.get(policy)) for policy in POLICIES),
                _share(told["gain"], sign="+"),
                "held" if held else "**broken**",
                "yes" if better else "**no**",
                f"{told['seconds']:.0f}",
            ]
            yield f"| {' | '.join(cells)} |"
    yield ""
    for name, each in figures.items():
        gains = [told["gain"][0] for told in each["seeds"].values()]
        better = sum(all(verdict(told)) for told in each["seeds"].values())
        said = f"{name}: RL over SFT {100 * sum(gains) / len(gains):+.1f} points"
        if len(gains) > 1:
            _, low, high = paired_interval(torch.tensor(gains))
            said += f", paired over {len(gains)} seeds [{100 * low:+.1f}, {100 * high:+.1f}]"
        yield (
            f"- {said}; contract held and RL better in {better} of {len(gains)}. Measured on"
            f" {each['date']}, {each['machine']['processor']}, {each['machine']['cores']} cores,"
            f" torch {each['machine']['torch']}."
        )


def _share(interval: Sequence[float] | None, *, sign: str = "") -> str:
    if interval is None:
        return ""
    value, low, high = (100 * each for each in interval)
    return f"{value:{sign}.1f} [{low:{sign}.1f}, {high:{sign}.1f}]"


def write(figures: Mapping[str, Any]) -> None:
    """Write figures, table and picture."""
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
    page = PAGE.read_text()
    before, rest = page.split(_BEGIN)
    after = rest.split(_END)[1]
    table = "\n".join(lines(figures)) if figures else "Nothing has been measured yet.\n"
    PAGE.write_text(f"{before}{_BEGIN}\n{table}\n{_END}{after}")
    if figures:
        PICTURE.write_text(drawn(figures))


def main() -> None:
    """Run what is asked for, and write what is known."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="Of recipes/play-NAME.")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--keep", type=Path, help="Where recipes with their reports are copied.")
    asked = parser.parse_args()
    for name in asked.names:
        if not (ROOT / f"recipes/play-{name}/recipe.yaml").is_file():
            parser.error(f"there is no recipes/play-{name}")
    for name in asked.names:
        told = {"date": datetime.now(UTC).date().isoformat(), "machine": described(1)}
        seeds: dict[str, Any] = {}
        bounds = bounds_of(name)
        for seed in asked.seeds:
            seeds[str(seed)] = run_seed(name, seed, keep=asked.keep)
            print(f"{name}, seed {seed}: {seeds[str(seed)]}", flush=True)
            # Kept as it comes, beside what another process may have written since: what is asked
            # for may take an hour.
            before = known().get(name, {}).get("seeds", {})
            write(known() | {name: {**told, **bounds, "seeds": before | seeds}})
    write(known())


def known() -> dict[str, Any]:
    """Read what was measured so far, by name."""
    figures: dict[str, Any] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    return figures


if __name__ == "__main__":
    main()
