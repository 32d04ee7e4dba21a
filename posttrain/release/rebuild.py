"""Make a release again from nothing but itself, and compare stage by stage."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.errors import UserError
from posttrain.pipeline.ledger import StageRun
from posttrain.release.canonical import sha256_of
from posttrain.release.code import unpack_code
from posttrain.release.contents import EVIDENCE, Contents
from posttrain.release.environment import differences, environment_lock
from posttrain.release.verify import Claims
from posttrain.reproduction.project import command_line, last_run, make_project, run_recipe

# Levels at which the same bytes are promised; at the others the same figures are.
BITWISE = ("L0", "L1")


@dataclass(frozen=True)
class Comparison:
    """One thing that was compared: what was released, what was rebuilt, and whether they agree."""

    stage: str
    what: str
    released: str
    rebuilt: str
    agrees: bool


@dataclass(frozen=True)
class Rebuilt:
    """The outcome: by stage, at which level, and how the environment differed."""

    level: str
    comparisons: tuple[Comparison, ...]
    environment: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether everything that the level promises came out again."""
        return all(each.agrees for each in self.comparisons)


def rebuild(contents: Contents, claims: Claims, folder: Path) -> Rebuilt:
    """Unpack the code, the recipe and the inputs into `folder`, run the DAG, and compare."""
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty; give a folder that is, or a new one")
    recipe = prepare(contents, folder)
    _run(folder, recipe)
    runs = last_run(folder)
    level = str(claims.about["level"])
    compare = _digests if level in BITWISE else _figures
    lock = json.loads(contents.read(f"{EVIDENCE}/environment.json"))
    return Rebuilt(
        level,
        tuple(compare(claims, runs, contents)),
        tuple(differences(lock, environment_lock())),
    )


def prepare(contents: Contents, folder: Path) -> Path:
    """Write what a run needs; the recipe's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    unpack_code(contents.read(f"{EVIDENCE}/code.tar"), folder)
    prefix = f"{EVIDENCE}/inputs/"
    inputs = [name for name in contents.names() if name.startswith(prefix)]
    for name in inputs:
        target = folder / name.removeprefix(prefix)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(contents.read(name))
    data = json.loads(contents.read(f"{EVIDENCE}/data.json"))
    recipe = folder / str(data["recipe"])
    recipe.mkdir(parents=True, exist_ok=True)
    for name in ("recipe.yaml", "params.yaml", "dvc.yaml"):
        (recipe / name).write_bytes(contents.read(f"{EVIDENCE}/{name}"))
    make_project(folder)
    return recipe


def _run(folder: Path, recipe: Path) -> None:
    """Run the recipe with the released code, in this environment, without any server."""
    if status := run_recipe(folder, recipe):
        command = " ".join(command_line(recipe.relative_to(folder).as_posix())[1:])
        raise UserError(
            f"the rebuild stopped: '{command}' in {folder} ended with {status}; its messages are "
            f"above and in {folder}/.posttrain/runs"
        )


def _digests(claims: Claims, runs: Mapping[str, StageRun], _contents: Contents) -> list[Comparison]:
    """Every output of every stage, by digest; and the keys, which say if the work was the same."""
    found = []
    for claim in claims.stages:
        definition = claim["predicate"]["buildDefinition"]
        stage = str(definition["externalParameters"]["stage"])
        run = runs.get(stage)
        made = {record.path: record.digest for record in run.outputs} if run else {}
        for each in claim["subject"]:
            released, rebuilt = each["digest"]["sha256"], made.get(each["name"], "nothing")
            found.append(
                Comparison(stage, each["name"], released, rebuilt, agrees=released == rebuilt)
            )
        key = definition["internalParameters"]["key"]
        same_code = run is not None and _code(run.components) == _code(
            definition["internalParameters"]["components"]
        )
        rebuilt_key = run.key if run else "nothing"
        found.append(Comparison(stage, "key", key, rebuilt_key, agrees=same_code))
    return found


def _code(components: Mapping[str, Any]) -> str:
    """Code and parameters must be the same; packages may differ where the bytes do not."""
    return sha256_of({name: components.get(name, {}) for name in ("code", "params", "inputs")})


def _figures(claims: Claims, runs: Mapping[str, StageRun], contents: Contents) -> list[Comparison]:
    """Every metric of the evaluation: both are estimates, so their intervals must overlap."""
    stored = json.loads(contents.read(f"{EVIDENCE}/metrics.json"))["evaluation"]
    policy = str(claims.about["policy"]["path"])
    found = []
    for stage, run in runs.items():
        report = next((record for record in run.outputs if record.role == "report"), None)
        roles = [record.role for record in run.inputs if record.path == policy]
        names = [role.removeprefix("policies.") for role in roles if role.startswith("policies.")]
        if report is None or not names:
            continue
        found += _overlaps(stage, run, names[0], stored)
    if not found:
        raise UserError("the rebuild has no evaluation of the policy to compare; see its report")
    return found


def _overlaps(
    stage: str, run: StageRun, policy: str, stored: Mapping[str, Mapping[str, float]]
) -> list[Comparison]:
    """An interval that was released against the rebuilt estimate, widened by as much again."""
    found = []
    for metric, value in stored.items():
        rebuilt = run.metrics.get(f"{stage}/{policy}/{metric}")
        if rebuilt is None:
            continue
        # Two independent estimates differ by sqrt(2) of what one of them is off.
        low = value["value"] - 2**0.5 * (value["value"] - value["low"])
        high = value["value"] + 2**0.5 * (value["high"] - value["value"])
        found.append(
            Comparison(
                stage,
                metric,
                f"{value['value']:.4f}, {low:.4f} to {high:.4f} for another run",
                f"{rebuilt:.4f}",
                agrees=low <= rebuilt <= high,
            )
        )
    return found
