"""Instructions that an author writes: about which failures it is asked, and what they earn."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

from posttrain.learning.episodes.players.base import Seat
from posttrain.learning.rl.instructors.base import InstructedAttempts, InstructorBench
from posttrain.learning.rl.instructors.members import InstructionMember
from posttrain.learning.rl.instructors.reflection import (
    InstructionFailure,
    Occasion,
    worst_failure,
    written_by,
)
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.learning.rollouts.engines.base import SamplingParams

WANTS_WHOLE_POLICY = (
    "draw.instructions: a population has its new members written and tried by the whole policy, and"
    " several processes share it out; set resources.processes to 1, or leave instructions out"
)
"""Why none is written where several processes learn."""


@dataclass
class InstructionWriter:
    """An author at work: the failures that it may be shown, and what came of its texts."""

    bench: InstructorBench
    author: Seat
    params: "SamplingParams"
    """With which the author draws, at a seed of each step's own."""
    candidates: int
    """Texts that are written each time."""
    tries_of_each: int
    """Problems that each of them is tried on; 0 takes them as they come."""
    replay: int
    """Failures that are kept."""
    shown: int
    """Of these, the most that the author is shown."""
    failures: list[InstructionFailure] = field(default_factory=list)
    written: int = 0
    """Instructions that came in."""
    tries: int = 0
    """Rollouts with which new ones were tried."""

    def remember(self, attempts: Sequence[InstructedAttempts]) -> None:
        """Keep the worst attempt of each group that was not solved throughout, the latest ones."""
        for each in attempts:
            self.failures += worst_failure(each)
        del self.failures[: -self.replay]

    def newcomers(
        self, staying: Sequence[InstructionMember], known: set[str], places: int, *, step: int
    ) -> list[InstructionMember]:
        """Have new instructions written, and take the ones that the present policy earns most with.

        Args:
            staying: Whose failures are written about: they take turns, the best first.
            known: Instructions that are no news; what is written joins them.
            places: The most that are taken.
            step: 0-based, before which this is.

        Returns:
            The best first, of equal ones who was written first; none that cannot be judged.

        Raises:
            UserError: What the author is asked leaves it no room to answer.

        """
        found: list[InstructionMember] = []
        for text, parent in self._proposed([each.text for each in staying], step=step):
            if not text or text in known:
                continue
            known.add(text)
            member = self._tried(InstructionMember(text, born=step, parent=parent), step=step)
            found += [] if member is None else [member]
        found.sort(key=lambda each: -(each.weight or 0.0))
        coming = found[:places]
        self.written += len(coming)
        return coming

    def _proposed(self, staying: Sequence[str], *, step: int) -> list[tuple[str, str]]:
        """New instructions, each with its parent."""
        seed = purpose_seed(self.bench.seed, "author", step)
        parents = [staying[place % len(staying)] for place in range(self.candidates)]
        occasions = [
            Occasion(parent, _mate(parent, staying, seed, place), self._failures_of(parent))
            for place, parent in enumerate(parents)
        ]
        speaker = self.author.speaker(replace(self.params, seed=seed))
        texts = written_by(speaker, occasions, step=step, seed=seed)
        if all(text is None for text in texts):
            raise UserError(
                "rl.draw.instructions: what the author is asked leaves it no room to answer; lower"
                f" shown ({self.shown} failures), or let one with a longer context write"
            )
        return [(text or "", parent) for text, parent in zip(texts, parents, strict=True)]

    def _failures_of(self, parent: str) -> Sequence[InstructionFailure]:
        latest = list(reversed(self.failures))
        own = [each for each in latest if each.instruction == parent]
        return (own + [each for each in latest if each.instruction != parent])[: self.shown]

    def _tried(self, member: InstructionMember, *, step: int) -> InstructionMember | None:
        """Say what the present policy earns behind it; nothing of one that cannot be judged."""
        if not self.tries_of_each:
            return member
        seed = purpose_seed(self.bench.seed, "tries", step)
        rewards = self.bench.try_out(member.text, count=self.tries_of_each, seed=seed)
        self.tries += len(rewards)
        if not rewards:
            return None
        return replace(member, weight=math.fsum(rewards) / len(rewards))

    def state_dict(self) -> dict[str, Any]:
        """Failures and counts, and what the author keeps."""
        return {
            "failures": [asdict(each) for each in self.failures],
            "written": self.written,
            "tries": self.tries,
            "author": self.author.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.failures = [InstructionFailure(**each) for each in state["failures"]]
        self.written, self.tries = int(state["written"]), int(state["tries"])
        self.author.load_state_dict(state["author"])


def _mate(parent: str, staying: Sequence[str], seed: int, place: int) -> str:
    others = [each for each in staying if each != parent] or [parent]
    return Random(purpose_seed(seed, "mate", place)).choice(others)
