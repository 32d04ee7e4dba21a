"""How far a training stage has come: what its checkpoints hold, and when they may be taken up."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from posttrain.learning.models.checkpoint import Checkpointer, Snapshot, read_checkpoint
from posttrain.learning.training.generators import generator_states, restore_generators
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError

GENERATORS = "generators"


class Stateful(Protocol):
    """A part that changes while training runs: a model, an optimizer, a curve, a curriculum."""

    def state_dict(self) -> Any:
        """All that it needs to go on, as tensors and plain values."""
        ...

    def load_state_dict(self, state: Any, /) -> Any:
        """Go on from what `state_dict` gave."""
        ...


@dataclass(frozen=True)
class Progress:
    """The parts of a training run by name.

    A checkpoint holds the state of each, those of the random generators, and no other.
    """

    parts: Mapping[str, Stateful]
    checkpointer: Checkpointer

    def save(
        self,
        step: int,
        *,
        facts: Mapping[str, Any] | None = None,
        files: Mapping[str, Path] | None = None,
    ) -> None:
        """Write a checkpoint of the state after a step.

        Args:
            step: Steps made.
            facts: Small values that come back with it, for JSON.
            files: Files to copy in, by name.

        """
        self.checkpointer.save(step, self.states(), facts=facts, files=files)

    def states(self) -> dict[str, Any]:
        """The state of every part, and of the random generators."""
        states = {name: part.state_dict() for name, part in self.parts.items()}
        return states | {GENERATORS: generator_states()}

    def save_if_due(self, step: int) -> None:
        """Write a checkpoint where the schedule asks for one; stop where the last one failed."""
        self.checkpointer.raise_failed()
        if self.checkpointer.due(step):
            self.save(step)

    def save_once(self, step: int) -> None:
        """Write a checkpoint, unless the schedule had one written after this step."""
        if not self.checkpointer.due(step):
            self.save(step)

    def restore(self, device: str) -> int:
        """Take up the newest checkpoint, if there is one; returns the steps that are done."""
        snapshot = self.newest(device)
        if snapshot is None:
            return 0
        for name, part in self.parts.items():
            part.load_state_dict(snapshot.states[name])
        restore_generators(snapshot.states[GENERATORS])
        return snapshot.step

    def newest(self, device: str) -> Snapshot | None:
        """The newest checkpoint, if there is one; refuses one that is not of these parts."""
        path = self.checkpointer.newest()
        return None if path is None else self.of_these_parts(read_checkpoint(path, device=device))

    def of_these_parts(self, snapshot: Snapshot) -> Snapshot:
        """Refuse a checkpoint that is not of these parts."""
        differing = sorted(snapshot.states.keys() ^ {*self.parts, GENERATORS})
        if differing:
            owner = "only the checkpoint" if differing[0] in snapshot.states else "only this run"
            raise UserError(
                f"{snapshot.path}: {owner} has a part '{differing[0]}'; remove the checkpoint"
            )
        return snapshot


def run_identity(config: StageConfig, *, seed: int, **digests: str) -> dict[str, str]:
    """Collect what a checkpoint must agree with to be taken up.

    >>> class Config(StageConfig):
    ...     rate: float = 0.1
    >>> run_identity(Config(), seed=0, policy="ab")
    {'config.rate': '0.1', 'seed': '0', 'inputs.policy': 'ab'}

    Args:
        config: Every field of it counts that can change a byte of the result.
        seed: Of the stage.
        **digests: Digest of each input, by name.

    Returns:
        Values as text, by place.

    """
    fields = _flat(config.keyed(), "config")
    return {**fields, "seed": str(seed), **{f"inputs.{k}": v for k, v in digests.items()}}


def _flat(value: Any, name: str) -> dict[str, str]:
    if not isinstance(value, dict) or not value:
        return {name: json.dumps(value, sort_keys=True)}
    return {k: v for key, part in value.items() for k, v in _flat(part, f"{name}.{key}").items()}
