"""Make a release again from nothing but itself, and compare stage by stage."""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from posttrain.publishing.release.canonical import pretty
from posttrain.publishing.release.code import unpack_code
from posttrain.publishing.release.contents import EVIDENCE, Contents
from posttrain.publishing.release.environment import altered_files, differences, environment_lock
from posttrain.publishing.release.levels import (
    BITWISE,
    RULES,
    RebuildComparison,
    compare_bytes,
    compare_figures,
    compare_replays,
)
from posttrain.publishing.release.replays import replay_in, replays_of
from posttrain.publishing.release.verify import SignedClaims
from posttrain.publishing.reproduction.project import (
    command_line,
    last_run,
    make_project,
    run_recipe,
)
from posttrain.stage.errors import UserError

REPORT = "rebuild.json"


@dataclass(frozen=True)
class Rebuilt:
    """The outcome: by stage, at which level, and how the environment differed."""

    level: str
    rule: str
    comparisons: tuple[RebuildComparison, ...]
    environment: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Return whether everything that the level promises came out again."""
        return all(each.agrees for each in self.comparisons if each.binding)


@dataclass(frozen=True)
class Wish:
    """At which level to compare (the declared one where None), and over how many seeds at L3."""

    level: str | None = None
    num_seeds: int = 3
    within: float = 0.1


def rebuild(
    contents: Contents, claims: SignedClaims, folder: Path, wish: Wish | None = None
) -> Rebuilt:
    """Unpack the code, the recipe and the inputs into `folder`, run the DAG, and compare.

    What was compared is also written to `folder`, as rebuild.json.
    """
    wish = wish or Wish()
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty; give a folder that is, or a new one")
    level = wish.level or str(claims.about["level"])
    lock = json.loads(contents.read(f"{EVIDENCE}/environment.json"))
    here = environment_lock()
    if level == "L1":
        _refuse_other_accelerator(str(lock.get("accelerator")), str(here["accelerator"]))
    if level == "L2" and not list(replays_of(contents)):
        raise UserError(
            f"the release carries no rollouts to replay (it declares {claims.about['level']}); "
            "give --level L3, which compares figures"
        )
    recipe = prepare(contents, folder)
    comparisons = _compared(contents, claims, folder, recipe, level=level, wish=wish)
    wrong = (*differences(lock, here), *altered_files(lock))
    done = Rebuilt(level, RULES[level], tuple(comparisons), wrong)
    (folder / REPORT).write_bytes(pretty({**asdict(done), "agrees": done.agrees}))
    return done


def _compared(
    contents: Contents, claims: SignedClaims, folder: Path, recipe: Path, *, level: str, wish: Wish
) -> list[RebuildComparison]:
    """Run as often as the level asks for, and compare what it promises; the rest is shown."""
    _run(folder, recipe)
    first = last_run(folder)
    found = list(compare_bytes(claims, first, binding=level in BITWISE))
    if level in BITWISE:
        return found
    if level == "L2":
        replayed = [
            (stage, weights, replay_in(folder, contents, stage))
            for stage, weights in replays_of(contents)
        ]
        figures = compare_figures(claims, {0: first}, contents, wish.within)
        return [*found, *compare_replays(replayed), *figures]
    seed = int(json.loads(contents.read(f"{EVIDENCE}/data.json"))["seed"])
    seeds = {seed: first}
    for other in range(seed + 1, seed + wish.num_seeds):
        _run(folder, recipe, "--set", f"run.seed={other}")
        seeds[other] = last_run(folder)
    return [*found, *compare_figures(claims, seeds, contents, wish.within)]


def prepare(contents: Contents, folder: Path) -> Path:
    """Write what a run needs; the recipe's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    unpack_code(contents.read(f"{EVIDENCE}/code.tar"), folder)
    if not (folder / "posttrain" / "__init__.py").is_file():
        raise UserError(
            f"{EVIDENCE}/code.tar does not hold the library, so nothing but what is installed "
            "here could be run; this is no rebuild of the release"
        )
    prefix = f"{EVIDENCE}/inputs/"
    inputs = [name for name in contents.names() if name.startswith(prefix)]
    for name in inputs:
        target = folder / name.removeprefix(prefix)
        target.parent.mkdir(parents=True, exist_ok=True)
        with contents.open(name) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink)
    data = json.loads(contents.read(f"{EVIDENCE}/data.json"))
    recipe = folder / str(data["recipe"])
    recipe.mkdir(parents=True, exist_ok=True)
    for name in ("recipe.yaml", "params.yaml", "dvc.yaml"):
        (recipe / name).write_bytes(contents.read(f"{EVIDENCE}/{name}"))
    make_project(folder)
    return recipe


def _run(folder: Path, recipe: Path, *options: str) -> None:
    """Run the recipe with the released code, in this environment, without any server."""
    if status := run_recipe(folder, recipe, *options):
        command = " ".join(command_line(recipe.relative_to(folder).as_posix(), options)[1:])
        raise UserError(
            f"the rebuild stopped: '{command}' in {folder} ended with {status}; its messages are "
            f"above and in {folder}/.posttrain/runs"
        )


def _refuse_other_accelerator(released: str, here: str) -> None:
    if released != here:
        raise UserError(
            f"at L1 the same bytes are promised on one model of GPU: the release was made with "
            f"'{released}', and here is '{here}'; rebuild it there, or give --level L3"
        )
