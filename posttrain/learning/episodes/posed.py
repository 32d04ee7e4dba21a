"""Who plays a world without a model: its script, and its random player."""

import json
import shutil
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple

from posttrain.learning.episodes.contract import check_move
from posttrain.learning.episodes.environments.base import POLICY, Environment, EpisodeState
from posttrain.learning.episodes.registry import EPISODE_ENVIRONMENTS
from posttrain.learning.episodes.script import Speak
from posttrain.learning.episodes.worlds.base import World
from posttrain.stage.extras import is_installed, package_line
from posttrain.stage.seeds import stable_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

By = Literal["script", "random"]
"""The good player of a world, or the one who knows how a move is written and nothing else."""


class Lacking(NamedTuple):
    """What a part needs and this machine has not."""

    what: str
    remedy: str
    """What to run."""


def worlds() -> Mapping[str, type[World]]:
    """All worlds that ship with posttrain, by kind."""
    parts = EPISODE_ENVIRONMENTS.parts
    return {kind: part for kind, part in parts.items() if issubclass(part, World)}


def posed_problem(world: World, seed: int) -> "Problem":
    """Pose a problem as the source `world` does.

    Args:
        world: With the settings that shape it.
        seed: Equal seeds pose equal problems.

    Returns:
        A problem whose metadata has all that playing depends on.

    """
    from posttrain.data.schemas import Problem
    from posttrain.stage.hashing import canonical_json

    prompt, facts = world.posed(Random(stable_seed(seed, world.kind, "posed")))
    metadata = json.dumps({world.kind: facts})
    return Problem(world.kind, prompt, canonical_json(facts), 1, "played", metadata=metadata)


def speaking(world: World, by: By, draw: Random, *, role: str = POLICY) -> Speak:
    """Let somebody speak for a role, and the script for all others.

    Args:
        world: What is played.
        by: Who plays the role.
        draw: Where the chance of all their moves comes from.
        role: Whose part is played by `by`.

    Returns:
        What says what each role says.

    """
    move = {"script": world.best_move, "random": world.random_move}[by]

    def speak(state: EpisodeState, asked: str) -> str:
        chosen = move if asked == role else world.best_move
        return check_move(world, chosen(state, asked, draw))

    return speak


def lacking(part: type[Environment]) -> tuple[Lacking, ...]:
    """Name the packages and programs that a part needs and that are not here.

    Args:
        part: An environment or a world, which names them in `PACKAGES` and `PROGRAMS`.

    Returns:
        Each with what installs it; nothing where all is there.

    """
    programs = [
        Lacking(name, remedy)
        for name, remedy in part.PROGRAMS.items()
        if shutil.which(name) is None
    ]
    packages = [
        Lacking(name, package_line(name))
        for name in sorted(part.PACKAGES)
        if not is_installed(name)
    ]
    return (*packages, *programs)
