"""Two steps of a method on a tiny model, with each of its switches and without it.

What is switched off is as the stage has it by default. Where the weights come out the same, the
switch does nothing there: a ratio method that makes one update a batch, for example. A section that
trains nothing, `evaluate` or `diagnose`, is judged by its figures (`figure_check`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from posttrain.methods.lay import laid_over
from posttrain.methods.method import Method
from posttrain.operations.stage_alone import run_alone
from posttrain.operations.tiny_world import TinyWorld
from posttrain.pipeline.recipe_method import task_parameters
from posttrain.pipeline.stage_section import inputs_by_port
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError

ALL_OF_IT = "all of it"
"""What is switched off where all that a method sets in a section is."""

TRAINED = ("rl", "coevolve", "preference", "sft")
"""Sections whose switches are looked at: a policy comes of them."""

_ALGORITHM, _INPUTS = "algorithm", "inputs"
# As a share of how far two steps move a weight: what rounding makes of equal mathematics is less.
NOTHING = 1e-3
_STEPS = {"steps": 2}


@dataclass(frozen=True)
class SwitchEffect:
    """What it does to the weights that a switch is not there."""

    method: str
    section: str
    switch: str
    """Its place in the section, or all that the method sets there."""
    change: float | None
    """Largest change of a weight, as a share of the largest that training made; None where it
    could not be run without."""
    remark: str = ""
    """Why it could not."""
    told: str = "without it weights move {:.0%} of the way"
    """What the change says, of a check that is kept."""

    @property
    def place(self) -> str:
        """The switch as a recipe writes it, such as `rl.algorithm.surrogate`."""
        return f"{self.section}{': ' if self.switch == ALL_OF_IT else '.'}{self.switch}"

    @property
    def is_of_weights(self) -> bool:
        """True where the change is one of weights; of figures, where the section trains nothing."""
        return self.section in TRAINED

    @property
    def acts(self) -> bool:
        """True where weights, or figures, are others without it."""
        return self.change is None or self.change > NOTHING


def switch_effects(
    method: Method, world: TinyWorld, begins: Callable[[str], None] = lambda _: None
) -> Iterator[SwitchEffect]:
    """Run a method with everything it sets, then without each switch, and without all of them.

    A switch that is set to its default has no line.

    Args:
        method: The method.
        world: Where it runs.
        begins: Told what runs next, in words, before each run.

    Yields:
        Section by section, in the method's order, the effect of all together, then of each; nothing
        of a method that sets no such section, or nothing but defaults.

    Raises:
        NotInTinyWorldError: It reads an artifact of a kind that the world has not.
        UserError: The method itself cannot be run.

    """
    from posttrain.operations.figure_check import figure_changes

    sections = {name: method.sets[name] or {} for name in method.sets if name in TRAINED}
    world = world.with_sections(method.sets)
    begins("what it reads")
    # Before anything is trained: of a method that lacks an input nothing is told.
    given = {name: _Arm.of(world, name, said) for name, said in sections.items()}
    for name, whole in given.items():
        yield from _section_effects(method.name, name, sections[name], whole, world, begins)
    for section, switch, change, told in figure_changes(method.sets, world, begins):
        yield SwitchEffect(method.name, section, switch or ALL_OF_IT, change, told=told)


class _Arm(NamedTuple):
    """A stage as a method's settings make it; equal ones come to the same weights."""

    config: StageConfig
    inputs: Mapping[str, Path]

    @classmethod
    def of(cls, world: TinyWorld, section: str, said: Mapping[str, Any]) -> "_Arm":
        config = world.config_of(section, laid_over(said, _STEPS))
        return cls(config, world.inputs_of(section, said))

    def weights(self, world: TinyWorld, section: str, name: str) -> dict[str, Any]:
        """Weights after two steps; in a folder of its own, where no checkpoint lies."""
        folder = world.folder / section / name
        return _weights(run_alone(world.tasks[section], *self, folder)["policy"])

    def moved(self, weights: Mapping[str, Any]) -> float:
        """How far training took the weights."""
        return _distance(_weights(self.inputs["policy"]), weights)


def _section_effects(
    name: str,
    section: str,
    said: Mapping[str, Any],
    whole: _Arm,
    world: TinyWorld,
    begins: Callable[[str], None],
) -> Iterator[SwitchEffect]:
    plain = _Arm.of(world, section, {})
    if plain == whole:
        return
    begins(f"{section} as it sets it")
    trained = whole.weights(world, section, f"{name}-whole")
    begins(f"{section} by default")
    moved = whole.moved(trained)
    try:
        bare = plain.weights(world, section, f"{name}-bare")
    except UserError:
        # What the default cannot train (a policy that unmasks) moves by the method alone.
        bare = _weights(whole.inputs["policy"])
    # Where the method moves no weight, what the default moves is the measure.
    moved = moved or plain.moved(bare) or 1.0
    yield SwitchEffect(name, section, ALL_OF_IT, _distance(trained, bare) / moved)
    for switch, rest in _without(said).items():
        try:
            arm = _Arm.of(world, section, rest)
            if arm == whole:
                continue
            begins(f"{section} without {switch}")
            other = arm.weights(world, section, f"{name}-{switch}")
        except (UserError, ValueError) as error:
            yield SwitchEffect(name, section, switch, None, str(error))
            continue
        yield SwitchEffect(name, section, switch, _distance(trained, other) / moved)


def _without(said: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings without each of them, one at a time, an algorithm's own one by one."""
    found = {
        name: {key: each for key, each in said.items() if key != name}
        for name in task_parameters(said)
        if name != _ALGORITHM
    }
    nested = {
        _ALGORITHM: said.get(_ALGORITHM) or {},
        _INPUTS: inputs_by_port(said.get(_INPUTS) or {}),
    }
    for part, named in nested.items():
        for name in named:
            rest = {key: each for key, each in named.items() if key != name}
            found[f"{part}.{name}"] = {**said, part: rest}
    return found


def _weights(policy: Path) -> dict[str, Any]:
    from posttrain.learning.models.load import load_policy

    return dict(load_policy(policy).model.state_dict())


def _distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)
