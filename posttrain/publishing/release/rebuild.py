"""Make a release again from nothing but itself, and compare stage by stage."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from posttrain.provenance.circumstances import differences, together
from posttrain.provenance.ledger import StageRun
from posttrain.publishing.release.claims import SignedClaims
from posttrain.publishing.release.code import holds_library, unpack_code
from posttrain.publishing.release.contents import EVIDENCE, Contents, pretty, write_folder
from posttrain.publishing.release.environment import accelerator, package_findings
from posttrain.publishing.release.names import BITWISE, RULES
from posttrain.publishing.release.replays import replay_in, replays_of
from posttrain.publishing.release.results import policies_of
from posttrain.publishing.reproduction.project import (
    command_line,
    foreign_environment,
    last_run,
    make_project,
    run_recipe,
)
from posttrain.publishing.reproduction.seeds import CONFIDENCE, spread_of
from posttrain.stage.errors import UserError

REPORT = "rebuild.json"
_DECIDES = "pass_at_1"


@dataclass(frozen=True)
class RebuildComparison:
    """One thing that was compared, how, and whether it agrees.

    What is not `binding` is shown, and decides nothing at this level. `agrees` is None where other
    bytes were to be expected, as they were made with other kernels.
    """

    stage: str
    what: str
    how: str
    released: str
    rebuilt: str
    agrees: bool | None
    binding: bool = True


@dataclass(frozen=True)
class Rebuilt:
    """The outcome: by stage, at which level, and how the environment differed."""

    level: str
    rule: str
    comparisons: tuple[RebuildComparison, ...]
    environment: tuple[str, ...]

    @property
    def agrees(self) -> bool | None:
        """True where everything that the level promises came out again, None where none can say."""
        return together(each.agrees for each in self.comparisons if each.binding)


@dataclass(frozen=True)
class Wish:
    """At which level to compare (the declared one where None), and over how many seeds at L3."""

    level: str | None = None
    num_seeds: int = 3
    within: float = 0.1
    given: tuple[str, ...] = ()
    """Variables of our environment that the released code is given beside harmless ones."""


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
    lock, here = contents.evidence("environment"), accelerator()
    if level == "L1" and lock.get("accelerator") != here:
        raise UserError(
            "at L1 the same bytes are promised on one model of GPU: the release was made with "
            f"'{lock.get('accelerator')}', and here is '{here}'; rebuild it there, "
            "or give --level L3"
        )
    if level == "L2" and not list(replays_of(contents)):
        raise UserError(
            f"the release carries no rollouts to replay (it declares {claims.about['level']}); "
            "give --level L3, which compares figures"
        )
    recipe = prepare(contents, folder)
    # Run as often as the level asks for, and compare what it promises; the rest is shown.
    seed = int(contents.evidence("data")["seed"])
    given = foreign_environment(wish.given)
    seeds = {seed: _run(folder, recipe, given)}
    found = list(compare_bytes(claims, seeds[seed], binding=level in BITWISE))
    if level == "L2":
        for stage, released in replays_of(contents):
            again, how = replay_in(folder, contents, stage), "weights from the stored rollouts"
            same = released == again
            found.append(RebuildComparison(stage, "weights", how, released, again, same))
    if level == "L3":
        for other in range(seed + 1, seed + wish.num_seeds):
            seeds[other] = _run(folder, recipe, given, "--set", f"run.seed={other}")
    if level not in BITWISE:
        found += compare_figures(claims, seeds, contents, wish.within)
    wrong = (*made_otherwise(claims, seeds[seed]), *package_findings(lock))
    done = Rebuilt(level, RULES[level], tuple(found), wrong)
    (folder / REPORT).write_bytes(pretty({**asdict(done), "agrees": done.agrees}))
    return done


def prepare(contents: Contents, folder: Path) -> Path:
    """Write what a run needs; the recipe's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    code = contents.read(f"{EVIDENCE}/code.tar")
    unpack_code(code, folder)
    if not holds_library(code):
        raise UserError(
            f"{EVIDENCE}/code.tar does not hold the library, so nothing but what is installed "
            "here could be run; this is no rebuild of the release"
        )
    write_folder(contents, folder, below=f"{EVIDENCE}/inputs/")
    recipe = folder / str(contents.evidence("data")["recipe"])
    recipe.mkdir(parents=True, exist_ok=True)
    for name in ("recipe.yaml", "params.yaml", "dvc.yaml"):
        (recipe / name).write_bytes(contents.read(f"{EVIDENCE}/{name}"))
    make_project(folder)
    return recipe


def _run(
    folder: Path, recipe: Path, given: Mapping[str, str], *options: str
) -> dict[str, StageRun]:
    """Run the recipe with the released code, in this environment, without any server."""
    if status := run_recipe(folder, recipe, *options, environment=given):
        command = " ".join(command_line(recipe.relative_to(folder).as_posix(), options)[1:])
        raise UserError(
            f"the rebuild stopped: '{command}' in {folder} ended with {status}; its messages are "
            f"above and in {folder}/.posttrain/runs"
        )
    return last_run(folder)


def compare_bytes(
    claims: SignedClaims, runs: Mapping[str, StageRun], *, binding: bool
) -> Iterator[RebuildComparison]:
    """Every output of every stage, by digest; and the keys, which say if the work was the same."""
    for claim in claims.stages:
        definition = claim["predicate"]["buildDefinition"]
        stage = str(definition["externalParameters"]["stage"])
        run = runs.get(stage)
        made = {record.path: record.digest for record in run.outputs} if run else {}
        for each in claim["subject"]:
            released, rebuilt = each["digest"]["sha256"], made.get(each["name"], "nothing")
            same = True if released == rebuilt else None if run and _apart(claim, run) else False
            yield RebuildComparison(stage, each["name"], "digest", released, rebuilt, same, binding)
        given = definition["internalParameters"]
        # Packages may differ where the result does not.
        groups = ("code", "params", "inputs") if binding else ("code", "params")
        same = run is not None and all(
            run.components.get(name, {}) == given["components"].get(name, {}) for name in groups
        )
        how = "code, parameters and inputs behind it" if binding else "code and parameters"
        key = run.key if run else "nothing"
        yield RebuildComparison(stage, "key", how, given["key"], key, same)


def made_otherwise(claims: SignedClaims, runs: Mapping[str, StageRun]) -> list[str]:
    """How stages were made with other kernels than here, one sentence each."""
    found: dict[str, None] = {}
    for claim in claims.stages:
        run = runs.get(str(claim["predicate"]["buildDefinition"]["externalParameters"]["stage"]))
        if run is not None:
            found |= dict.fromkeys(_apart(claim, run))
    return [f"made with {each}: other bytes are not comparable at L0" for each in found]


def _apart(claim: Mapping[str, Any], run: StageRun) -> list[str]:
    given = claim["predicate"]["buildDefinition"]["internalParameters"].get("circumstances", {})
    return differences(given, run.circumstances)


def compare_figures(
    claims: SignedClaims,
    seeds: Mapping[int, Mapping[str, StageRun]],
    contents: Contents,
    within: float,
) -> list[RebuildComparison]:
    """The evaluation's metrics over the rebuilt seeds; pass@1 decides, the others are shown."""
    stored = contents.evidence("metrics")["evaluation"]
    stage, prefix = _evaluation(claims, next(iter(seeds.values())))
    found = []
    for metric, value in stored.items():
        name = f"{stage}/{prefix}/{metric}"
        values = {
            seed: runs[stage].metrics[name]
            for seed, runs in seeds.items()
            if stage in runs and name in runs[stage].metrics
        }
        if len(values) == len(seeds):
            compared = (
                _overlap(value, values) if len(values) == 1 else _spread(value, values, within)
            )
            found.append(RebuildComparison(stage, metric, *compared, binding=metric == _DECIDES))
    if not any(each.binding for each in found):
        raise UserError(f"the rebuild has no {_DECIDES} of the policy to compare; see its report")
    return found


def _evaluation(claims: SignedClaims, runs: Mapping[str, StageRun]) -> tuple[str, str]:
    """The stage that evaluated the released policy, and what it calls it."""
    released = str(claims.about["policy"]["path"])
    for stage, run in runs.items():
        for name, policy in policies_of(run).items():
            if policy.path == released and any(record.role == "report" for record in run.outputs):
                return stage, name
    raise UserError("the rebuild has no evaluation of the policy to compare; see its report")


def _overlap(value: Mapping[str, float], values: Mapping[int, float]) -> tuple[str, str, str, bool]:
    """One seed: two estimates on other draws differ by sqrt(2) of what one of them is off."""
    (rebuilt,) = values.values()
    low = value["value"] - 2**0.5 * (value["value"] - value["low"])
    high = value["value"] + 2**0.5 * (value["high"] - value["value"])
    how = "the two intervals over problems overlap: one seed, so training is not averaged over"
    released = f"{value['value']:.4f}, {low:.4f} to {high:.4f} for another run"
    return how, released, f"{rebuilt:.4f}", low <= rebuilt <= high


def _spread(
    value: Mapping[str, float], values: Mapping[int, float], within: float
) -> tuple[str, str, str, bool]:
    """Several seeds: the released value lies where one more of them would, by Student's t."""
    found = spread_of("it", value["value"], values, within)
    how = (
        f"it lies in the {CONFIDENCE:.0%} t prediction interval of {len(values)} rebuilt seeds, "
        f"which tell the mean to within {within:g}"
    )
    rebuilt = f"{found.mean:.4f}, {found.low:.4f} to {found.high:.4f} for one seed"
    if not found.enough:
        rebuilt += f"; undecided, {found.needed} seeds would tell"
    return how, f"{value['value']:.4f}", rebuilt, found.holds
