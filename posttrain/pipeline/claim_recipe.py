"""A claim as a recipe of `flows.claim`: an arena, a stage for each arm and seed, a verdict."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.methods.claim import Arena, MethodClaim
from posttrain.methods.find import arena_files, find_arena, find_method, plugins_of_project
from posttrain.methods.lay import laid_over
from posttrain.methods.method import Method
from posttrain.pipeline.claim_metrics import refuse_ungraded, refuse_unmeasured_of
from posttrain.pipeline.flow import load_flow
from posttrain.pipeline.recipe import Recipe
from posttrain.pipeline.recipe_formats import FORMAT
from posttrain.pipeline.recipe_method import (
    layers_of_method,
    place_of_method,
    task_parameters,
    told_where_it_is_said,
)
from posttrain.pipeline.recipe_values import CLAIMS_FOLDER, RunSettings
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import canonical_json, sha256_of
from posttrain.stage.spec import Task

FLOW = "flows.claim"
_NOT_SHARED = ("rl", "coevolve", "preference", "evaluate", "diagnose")
"""Sections of an arena that lie under those of arms and evaluations; its flow has no such stage."""


def values_of_claim(method: Method, claim: MethodClaim, *, seeds: int) -> dict[str, Any]:
    """Write a claim as the values of a recipe.

    Args:
        method: Whose claim it is.
        claim: The claim.
        seeds: Runs of each arm.

    Returns:
        The top level of a recipe of `flows.claim`.

    Raises:
        UserError: There is no such arena; an arm sets what all arms share or none reads, or what
            is refused; or a metric is named that neither the arms nor their evaluation measure.

    """
    place = _place(method, claim)
    arena, trains = find_arena(claim.arena, where=f"{place}.arena"), claim.trains
    flow = load_flow(FLOW, Path.cwd(), where=f"method {method.name}")
    grading = {name: method.sets[name] or {} for name in flow.GRADING if name in method.sets}
    values: dict[str, Any] = {"flow": FLOW, "format": FORMAT, **_shared(arena)}
    arms, compared = {}, {}
    for name, said in _arms(method, claim).items():
        where = f"method {method.name}: claim {claim.name}: arm {name}"
        own = {key: each for key, each in said.items() if key not in grading}
        arm = arms[name] = _Arm.of(name, own, trains, arena, flow, where)
        compared[name] = _parsed(method, claim, arena, arm, where)[trains]
        for n in claim.numbers(seeds):
            values |= arm.stages(n)
    diagnosed = _diagnosed(arena, method)
    refuse_unmeasured_of(method.name, claim, compared, where=place)
    graded = laid_over(arena.sections.get("evaluate", {}), grading.get("evaluate", {}))
    evaluation = flow.EVALUATION[0].config.parse(
        task_parameters(graded), where=f"{place}: evaluate"
    )
    diagnostics = diagnosed.get("diagnostics") or ()
    ranks = bool((graded.get("inputs") or {}).get("reward_model"))
    refuse_ungraded(method.name, claim, arena, evaluation, diagnostics, ranks=ranks, where=place)
    for n in claim.numbers(seeds):
        evaluated = _evaluation(flow, arena, [*arms], n, trains)
        if not claim.against:
            # A seed is shared by two at least, and a method alone has no other arm.
            evaluated["seed_as"] = f"seed_{n}"
        values[f"evaluate_{n}"] = laid_over(evaluated, graded)
        if diagnosed:
            numbers = claim.numbers(seeds)
            again = numbers[(numbers.index(n) + 1) % len(numbers)]
            made = _diagnosis(flow, arena, arms, n, trains, again)
            values[f"diagnose_{n}"] = laid_over(made, diagnosed)
    decision = _verdict(method, claim, arena, [*arms], seeds)
    updates = {name: int(getattr(of, "updates_per_step", 1)) for name, of in compared.items()}
    if claim.matched == "updates" and any(each != 1 for each in updates.values()):
        # Optimizer updates in each step of a curve; of RL alone there may be several.
        decision["updates_per_step"] = updates
    values["verdict"] = {"task": flow.DECISION.package, **decision}
    # Arms may name parts of the project's own.
    return values | ({"plugins": [*plugins]} if (plugins := plugins_of_project()) else {})


def recipe_of_claim(values: Mapping[str, Any], folder: Path) -> Recipe:
    """Make a recipe of a claim's values; no file is written.

    Args:
        values: Of `values_of_claim`.
        folder: Where its outputs lie.

    Returns:
        The recipe.

    """
    top = ("flow", "format", "run", "plugins")
    return Recipe(
        path=folder / "recipe.yaml",
        flow=FLOW,
        run=RunSettings.parse(values.get("run", {}), where="run"),
        sections={k: v for k, v in values.items() if k not in top},
        plugins=tuple(values.get("plugins", ())),
    )


def folder_of_claim(method: Method, claim: MethodClaim, root: Path) -> Path:
    """Say where a claim's recipe is in a project, and what its stages make."""
    return root.joinpath(*CLAIMS_FOLDER, f"{method.name}.{claim.name}")


def arenas_of_same_base(name: str, root: Path) -> list[str]:
    """Find the arenas whose base is that of another one, so that it is made once for all.

    Args:
        name: Of an arena.
        root: The project.

    Returns:
        Names of the others in which every stage up to the base's comes to the same settings. One
        whose file is wrong is passed over.

    Raises:
        UserError: What the named arena says is wrong.

    """
    own, found = _made_for_base(find_arena(name), root), []
    for other in sorted(arena_files().keys() - {name}):
        with suppress(UserError):
            if _made_for_base(find_arena(other), root) == own:
                found.append(other)
    return found


def digest_of_claim(method: Method, claim: MethodClaim) -> str:
    """SHA-256 of all that a claim says: the method's settings, its arms, its arena."""
    arms = {arm: dict(said) for arm, said in _arms(method, claim).items()}
    arena = find_arena(claim.arena).model_dump(mode="json", exclude={"says"})
    unsaid = {"says", "minutes", "against"}
    if claim.first_seed == 1:
        # Claims that were decided before a first run could be named say what they said.
        unsaid.add("first_seed")
    said = claim.model_dump(mode="json", by_alias=True, exclude=unsaid)
    return sha256_of(canonical_json({"arms": arms, "arena": arena, "claim": said}))


def stage_of_arm(trains: str, arm: str, seed: int) -> str:
    """Name the stage of an arm at a seed, counted from 1."""
    return f"{trains}_{arm}_{seed}"


def _shared(arena: Arena) -> dict[str, Any]:
    """Sections of an arena that are shared by all arms, and those of the run as a whole."""
    return {name: said for name, said in arena.sections.items() if name not in _NOT_SHARED}


def _made_for_base(arena: Arena, root: Path) -> Any:
    """What the stages up to an arena's base come to, and what they run on."""
    recipe = recipe_of_claim({**_shared(arena), "plugins": plugins_of_project()}, root)
    dag, names, new = recipe.resolve(root), set[str](), {arena.base}
    while new:
        names |= new
        new = {above for each in new for above in dag.upstream(each)} - names
    stages = {
        name: (of.task.package, of.config.keyed(), of.seed_as, {**of.inputs})
        for name, of in dag.stages.items()
        if name in names
    }
    return arena.base, stages, recipe.run.keyed()


def _arms(method: Method, claim: MethodClaim) -> dict[str, Mapping[str, Any]]:
    """Sections of each arm, the method's own first."""
    if method.name in claim.against:
        raise UserError(
            f"{_place(method, claim)}.against: an arm is called as the method itself; rename it"
        )
    arms: dict[str, Mapping[str, Any]] = {method.name: method.sets}
    for arm, said in claim.against.items():
        own = dict(said)
        base, where = own.pop("method", None), f"{_place(method, claim)}.against.{arm}.method"
        sets = {} if base is None else find_method(str(base), where=where).method.sets
        arms[arm] = laid_over(sets, own)
    return arms


@dataclass(frozen=True)
class _Arm:
    """The stages of an arm: the one that is compared, and what the arm sets that leads to it."""

    name: str
    tasks: Mapping[str, Task]
    settings: Mapping[str, Mapping[str, Any]]
    """What each section says over the arena's budget, without its connections."""
    inputs: Mapping[str, Mapping[str, Any]]
    """What each reads; sections of the arm are named as those that arms share."""

    @classmethod
    def of(
        cls,
        name: str,
        said: Mapping[str, Any],
        trains: str,
        arena: Arena,
        flow: Any,
        where: str,
    ) -> "_Arm":
        begins = flow.base_of(arena.sections)
        settings, inputs = {}, {}
        for section in (*said, trains):
            if section not in flow.ARMS:
                raise UserError(
                    f"{where} sets {section}, which arms of a claim on {trains} share; set"
                    " `trains`, or take an arena that has it"
                )
            laid = laid_over(arena.sections.get(section, {}), said.get(section) or {})
            further = laid.pop("inputs", None) or {}
            wires = {port: str(each) for port, each in flow.ARMS[section][1].items()}
            wires = {port: each.format(base=begins) for port, each in wires.items()}
            settings[section], inputs[section] = laid, {**wires, **further}
        arm = cls(name, {each: flow.ARMS[each][0] for each in settings}, settings, inputs)
        led = arm.leading_to(trains)
        for section in settings:
            if section not in led:
                raise UserError(
                    f"{where} sets {section}, and nothing that leads to its {trains} reads it;"
                    " connect it by `inputs`, set `trains`, or take an arena that has it"
                )
        return arm

    def stages(self, seed: int) -> dict[str, dict[str, Any]]:
        """Its stages at a seed, counted from 1; data that no policy has a part in is made once."""
        names = {section: self._stage_of(section, seed) for section in self.settings}
        return {
            names[section]: {
                "task": self.tasks[section].package,
                "inputs": _reading(names, self.inputs[section]),
                # The problems are those of the arena: its held-out ones are in none of them.
                "seed_as": f"seed_{seed}" if self._is_of_a_seed(section) else section,
                **self.settings[section],
            }
            for section in self.settings
        }

    def leading_to(self, section: str) -> set[str]:
        """Name the sections of the arm that one reads, directly or not, and it itself."""
        led, new = set[str](), {section}
        while new:
            led |= new
            read = {stage for each in new for stage in _stages_in(self.inputs[each])}
            new = (read & self.inputs.keys()) - led
        return led

    def _is_of_a_seed(self, section: str) -> bool:
        return any("policy" in self.tasks[each].inputs for each in self.leading_to(section))

    def _stage_of(self, section: str, seed: int) -> str:
        if self._is_of_a_seed(section):
            return stage_of_arm(section, self.name, seed)
        return f"{section}_{self.name}"


def _stages_in(inputs: Any) -> set[str]:
    """Name the stages whose outputs are connected, here or by name under a port."""
    if isinstance(inputs, Mapping):
        return {stage for each in inputs.values() for stage in _stages_in(each)}
    return {str(inputs).partition(".")[0]}


def _reading(names: Mapping[str, str], inputs: Any) -> Any:
    """Let connections name an arm's own stages in the place of those that arms share."""
    if isinstance(inputs, Mapping):
        return {port: _reading(names, each) for port, each in inputs.items()}
    stage, dot, output = str(inputs).partition(".")
    return f"{names[stage]}{dot}{output}" if stage in names else inputs


def _evaluation(
    flow: Any, arena: Arena, arms: Sequence[str], seed: int, trains: str
) -> dict[str, Any]:
    """What grades the policies of a seed; arms that train none are graded by a diagnosis alone."""
    grader, graded = flow.EVALUATION
    trained = {f"policies.{arm}": f"{stage_of_arm(trains, arm, seed)}.policy" for arm in arms}
    return {
        "task": grader.package,
        "inputs": {
            **graded,
            f"policies.{arena.base}": f"{arena.base}.policy",
            **(trained if _makes(flow, trains, "policy") else {}),
        },
    }


def _diagnosis(
    flow: Any, arena: Arena, arms: Mapping[str, "_Arm"], seed: int, trains: str, again: int
) -> dict[str, Any]:
    """What looks at the arms of a seed: all that they made, and the policies of another seed."""
    looker, read = flow.DIAGNOSIS
    begins = flow.base_of(arena.sections)
    inputs = {
        **read,
        "reports.heldout": f"evaluate_{seed}.report",
        "completions.heldout": f"evaluate_{seed}.completions",
        f"policies.{begins}": f"{begins}.policy",
        f"policies.{arena.base}": f"{arena.base}.policy",
    }
    if "reward" in arena.sections:
        inputs["reward_models.reward"] = "reward.reward_model"
    for name, arm in arms.items():
        stage = stage_of_arm(trains, name, seed)
        inputs[f"curves.{name}"] = f"{stage}.curve"
        if _makes(flow, trains, "rollouts"):
            inputs[f"rollouts.{name}"] = f"{stage}.rollouts"
        if _makes(flow, trains, "policy"):
            inputs[f"policies.{name}"] = f"{stage}.policy"
            inputs[f"repeats.{name}"] = f"{stage_of_arm(trains, name, again)}.policy"
        if "reward" in arm.settings:
            inputs[f"reward_models.{name}"] = f"{stage_of_arm('reward', name, seed)}.reward_model"
    return {"task": looker.package, "reference": arena.base, "inputs": inputs}


def _diagnosed(arena: Arena, method: Method) -> Mapping[str, Any]:
    """What looks at all arms of a claim: the arena's diagnosis, and the method's over it."""
    return laid_over(arena.sections.get("diagnose", {}), method.sets.get("diagnose") or {})


def _makes(flow: Any, section: str, output: str) -> bool:
    return output in flow.ARMS[section][0].outputs


def _parsed(
    method: Method, claim: MethodClaim, arena: Arena, arm: "_Arm", where: str
) -> dict[str, StageConfig]:
    """Parse what an arm says of each section; a slip is blamed on the file that it stands in."""
    found = {}
    for section, laid in arm.settings.items():
        start = f"{where}: {section}"

        def parse(
            said: Mapping[str, Any], task: Task = arm.tasks[section], start: str = start
        ) -> StageConfig:
            # A stage that the arena adds names its task.
            own = {key: each for key, each in task_parameters(said).items() if key != "task"}
            return task.config.parse(own, where=start)

        try:
            found[section] = parse(laid)
        except UserError as error:
            layers = _layers(method, claim, arena, arm.name, section)
            raise told_where_it_is_said(error, start, layers, parse) from None
    return found


def _layers(
    method: Method, claim: MethodClaim, arena: Arena, arm: str, section: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What lies over each other in a section of an arm, each with its place."""
    yield f"arena {arena.name}: sections.{section}", arena.sections.get(section, {})
    said = claim.against.get(arm, {"method": method.name})
    yield from layers_of_method(str(said.get("method", "")), section)
    yield f"{_place(method, claim)}.against.{arm}.{section}", said.get(section) or {}


def _place(method: Method, claim: MethodClaim) -> str:
    return f"{place_of_method(method)}: claims.{claim.name}"


def _verdict(
    method: Method, claim: MethodClaim, arena: Arena, arms: list[str], seeds: int
) -> dict[str, Any]:
    # The verdict counts its seeds from 1, whatever the number of the first run is.
    runs = [*enumerate(claim.numbers(seeds), start=1)]
    inputs = {f"reports.seed_{i}": f"evaluate_{n}.report" for i, n in runs}
    inputs |= {f"completions.seed_{i}": f"evaluate_{n}.completions" for i, n in runs}
    if _diagnosed(arena, method):
        inputs |= {f"diagnoses.seed_{i}": f"diagnose_{n}.report" for i, n in runs}
    inputs |= {
        f"curves.{arm}_{i}": f"{stage_of_arm(claim.trains, arm, n)}.curve"
        for arm in arms
        for i, n in runs
    }
    said = claim.model_dump(mode="json", by_alias=True, include={"mechanism", "matched", "decide"})
    return {
        "inputs": inputs,
        "method": method.name,
        "claim": claim.name,
        "arms": arms,
        "base": arena.base,
        "contract": [each.model_dump(mode="json") for each in arena.contract],
        "seeds": seeds,
        **said,
    }
