"""What methods are tried on: a tiny policy with its problems, and what stages make of them."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from posttrain.learning.rollouts.engines.registry import ENGINES
from posttrain.methods.lay import laid_over
from posttrain.operations.stage_alone import run_alone
from posttrain.operations.tiny_guesser import Tries, save_guessers, write_problems
from posttrain.operations.tiny_mask_guesser import save_mask_guessers
from posttrain.pipeline.recipe_method import task_parameters
from posttrain.pipeline.stage_section import inputs_by_port, port_of
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.spec import ArtifactKind, Task

_FEW_STEPS: Mapping[str, Any] = {"optimization": {"learning_rate": 1e-3, "warmup_steps": 0}}
_OF_RL: Mapping[str, Any] = {
    "problems_per_step": 16,
    "group_size": 6,
    "max_tokens": 8,
    "optimization": {"optimizer": "adamw", "learning_rate": 3e-3, "warmup_steps": 0},
}
_BUDGETS: Mapping[str, Mapping[str, Any]] = {
    "probe": {"max_tokens": 8},
    "rl": _OF_RL,
    "coevolve": _OF_RL,
    "preference": {**_FEW_STEPS, "sampling": {"max_tokens": 8}},
    "reward": {**_FEW_STEPS, "steps": 4},
    # Its traces are the probe's samples, right ones and wrong ones.
    "sft": {**_FEW_STEPS, "require_verified": False},
    "synthesize": {"num_problems": 16, "num_heldout": 2},
    # Warm enough that a problem has several different wrong answers beside a right one.
    "evaluate": {"num_samples": 16, "pass_at": [1], "max_tokens": 8, "temperature": 1.5},
    "diagnose": {},
}
"""Sections that can be run, and the tiny budget that lies under their settings."""

_MADE_IN = 4
"""Steps of a stage whose output another one only reads."""


def playing(said: Mapping[str, Any]) -> dict[str, Any]:
    """Give a section's settings with something to play, where its producer plays, or it tries
    again what failed.

    Whatever environment it names, `Tries` stands for it: with the settings of it that it has too,
    and with the roles that somebody is named for.

    Args:
        said: Settings of a section.

    Returns:
        The same settings where it plays nothing.

    """
    producer = said.get("producer")
    if said.get("guidance"):
        return {**said, "environment": Tries()}
    if not isinstance(producer, Mapping):
        return dict(said)
    if producer.get("kind") != "episodes":
        return dict(said)
    named, peers = producer.get("environment"), [*(producer.get("roles") or ())]
    settings = named if isinstance(named, Mapping) else {}
    kept = {name: settings[name] for name in settings if name in Tries.model_fields}
    played = Tries.parse({**kept, "kind": "tries", "peers": peers}, where="environment")
    rounds = 5 if peers else 3
    return {**said, "producer": {"most_turns": rounds, **producer, "environment": played}}


class NotInTinyWorldError(UserError):
    """A stage is to read an artifact of a kind that a tiny world has not."""


@dataclass(frozen=True)
class TinyWorld:
    """A tiny policy with problems, probed samples and solve rates."""

    inputs: Mapping[str, Mapping[str, Path]]
    """What a stage of each section is given."""
    further: Mapping[ArtifactKind, Path]
    """What may be connected beside it; what is not there, and a stage makes, is made by it."""
    tasks: Mapping[str, Task]
    folder: Path
    own: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    """Sections of the method that is looked at: what names one of them reads what it makes."""
    _made: dict[str, dict[str, Path]] = field(default_factory=dict, repr=False)

    def with_sections(self, sets: Mapping[str, Mapping[str, Any] | None]) -> "TinyWorld":
        """Give the same world with what a method's own sections make in it.

        A method that makes its data, such as the traces of a script in a world of several turns, is
        then looked at on these; one that unmasks answers begins from a policy that can.
        """
        own = {name: said for name, said in sets.items() if name in _BUDGETS}
        # A folder of its own each time: in that of an earlier run a stage would go on from there.
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        world = self
        unmasks = [said["engine"] for said in own.values() if said and _unmasks(said)]
        if unmasks:
            world = make_tiny_world(
                folder, self.tasks, save=save_mask_guessers, probed_by={"engine": unmasks[0]}
            )
        return replace(world, own=own, folder=folder, _made={})

    def config_of(self, section: str, said: Mapping[str, Any]) -> StageConfig:
        """Parse what stands in a section, with a tiny budget under it.

        Args:
            section: One that can be run.
            said: Its settings; what is no parameter of the stage counts for nothing here.

        Returns:
            The stage's parameters.

        Raises:
            UserError: One of them is refused.

        """
        values = playing(laid_over(_BUDGETS[section], task_parameters(said)))
        return self.tasks[section].config.parse(values, where=section)

    def inputs_of(self, section: str, said: Mapping[str, Any]) -> dict[str, Path]:
        """Give what a stage reads, with what its section connects beside the usual.

        Where a connection names a section that the method sets itself, it is what that stage makes
        here. Whatever other stage it names, the artifact of the port's kind in this world stands
        for it; a checkpoint is another one than the policy that training starts from, and what a
        stage of the very same section made is by that other one.

        Args:
            section: One that can be run.
            said: What stands in it; its `inputs` are as in a recipe, null for none.

        Returns:
            A path for each port that is connected.

        Raises:
            NotInTinyWorldError: There is no artifact of that kind.
            UserError: There is no such port, or the stage has no such output.

        """
        given = dict(self.inputs.get(section, {}))
        for port, reference in inputs_by_port(said.get("inputs") or {}).items():
            where = f"{section}.inputs.{port}"
            kind = port_of(where, self.tasks[section], port).type
            if reference is None:
                given.pop(port, None)
            else:
                given[port] = self._artifact(kind, str(reference), section, where)
        return given

    def _artifact(self, kind: ArtifactKind, reference: str, asking: str, where: str) -> Path:
        stage, _, output = reference.partition(".")
        if stage in self.own:
            made = self._made_by(stage)
            if output not in made:
                told = nearest(output, made) or f"; there are {', '.join(made)}"
                raise UserError(f"{where}: {stage} has no output '{output}'{told}")
            return made[output]
        if kind in self.further:
            return self.further[kind]
        for section in self.inputs:
            for name, port in self.tasks[section].outputs.items():
                if port.type == kind:
                    make = self._made_elsewhere if section == asking else self._made_by
                    return make(section)[name]
        raise NotInTinyWorldError(f"{where} reads {kind}, and the tiny world has none")

    def _made_elsewhere(self, section: str) -> dict[str, Path]:
        """Make what another run of a section has, which is no run of the method: of its defaults.

        Whoever draws there is another policy than the one that training starts from, so that what
        an author gave a token is not what the policy gives it.
        """
        if (name := f"another {section}") not in self._made:
            inputs = {**self.inputs[section], "policy": self.further[ArtifactKind.CHECKPOINT]}
            # Those rates are of the other policy's attempts.
            inputs.pop("solve_rates", None)
            folder = self.folder / "another"
            other = replace(self, inputs={section: inputs}, own={}, folder=folder, _made={})
            self._made[name] = other._made_by(section)
        return self._made[name]

    def _made_by(self, section: str) -> dict[str, Path]:
        if section not in self._made:
            said = self.own.get(section) or {}
            if section in self.own and "steps" in self.tasks[section].config.model_fields:
                said = {**said, "steps": _MADE_IN}
            config, given = self.config_of(section, said), self.inputs_of(section, said)
            folder = self.folder / "made" / section
            self._made[section] = run_alone(self.tasks[section], config, given, folder)
        return self._made[section]


def _unmasks(said: Mapping[str, Any] | None) -> bool:
    """Whether a section samples by unmasking."""
    engine = (said or {}).get("engine")
    kind = engine.get("kind") if isinstance(engine, Mapping) else engine
    # A wrong one is refused where the section is read.
    return isinstance(kind, str) and ENGINES.has(kind) and ENGINES.find(kind).UNMASKS


def make_tiny_world(
    folder: Path,
    tasks: Mapping[str, Task],
    *,
    save: Callable[[Path], tuple[Path, Path]] = save_guessers,
    probed_by: Mapping[str, Any] = MappingProxyType({}),
) -> TinyWorld:
    """Train a policy that guesses between two answers, and probe it.

    Args:
        folder: Where everything is written.
        tasks: What each section of a recipe is for.
        save: Trains and saves the policy, and another one.
        probed_by: What the probe sets beside its budget, such as the engine that draws from such a
            policy.

    Returns:
        The world; about a second of work.

    """
    problems = folder / "problems.parquet"
    write_problems(problems)
    policy, earlier = save(folder)
    given = {"policy": policy, "problems": problems}
    config = tasks["probe"].config.parse({**_BUDGETS["probe"], **probed_by}, where="probe")
    probed = run_alone(tasks["probe"], config, given, folder / "probe")
    samples, rates = probed["samples"], probed["solve_rates"]
    return TinyWorld(
        {
            "reward": {"policy": policy, "samples": samples},
            "rl": {**given, "solve_rates": rates},
            "coevolve": {**given, "solve_rates": rates},
            "preference": {**given, "samples": samples},
            "sft": {"policy": policy, "traces": samples},
            "probe": given,
            "evaluate": {"problems": problems, "policies.sft": policy},
            "diagnose": {
                "problems": problems,
                "policies.sft": policy,
                "policies.pretrain": earlier,
            },
        },
        {
            ArtifactKind.CHECKPOINT: earlier,
            ArtifactKind.PROBLEMS: problems,
            ArtifactKind.COMPLETIONS: samples,
            ArtifactKind.SOLVE_RATES: rates,
        },
        tasks,
        folder,
    )
