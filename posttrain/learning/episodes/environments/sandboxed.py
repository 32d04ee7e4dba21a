"""What environments share that run programs: in the sandbox, those of a round side by side."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from posttrain.backends.sandbox.door import run_programs
from posttrain.backends.sandbox.launch import BUBBLEWRAP
from posttrain.backends.sandbox.program import Program, ProgramEnd
from posttrain.learning.episodes.environments.base import (
    Act,
    Environment,
    EpisodeState,
    Said,
    Situation,
)
from posttrain.stage.needs import SANDBOX


class InSandbox(Environment):
    """Answers all episodes of a round at once, by the sandbox; define `step_all`."""

    PROGRAMS: ClassVar[Mapping[str, str]] = {"bwrap": BUBBLEWRAP}

    def reaches(self) -> frozenset[str]:
        """Ask for the sandbox."""
        return frozenset({SANDBOX})

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:
        """Run and answer; see `Environment.step`."""
        return self.step_all([Said(state, acts, seed)])[0]

    @abstractmethod
    def step_all(self, turns: Sequence[Said]) -> list[Situation]:
        """Answer what was said in several episodes; see `Environment.step_all`."""
        raise NotImplementedError


class Sandboxed(InSandbox):
    """Runs programs before it answers; derive from it, and define `programs` and `answered`.

    A program is lost where its sandbox ends under it. That may be the machine's doing, which had no
    room, or the program's own, so that it must gain nothing: it runs once more after all others,
    and if it is lost again, so does one of ours that takes half as much memory. Only where that is
    lost too the environment broke.
    """

    @abstractmethod
    def programs(self, state: EpisodeState, acts: Sequence[Act]) -> Sequence[Program]:
        """Make the programs that have to run before an answer.

        Args:
            state: Of the situation that asked.
            acts: What was said.

        Returns:
            What to run; nothing where it is answered without.

        """
        raise NotImplementedError

    @abstractmethod
    def answered(
        self, state: EpisodeState, acts: Sequence[Act], ends: Sequence[ProgramEnd]
    ) -> Situation:
        """Answer what was said, when its programs have run.

        Args:
            state: Of the situation that asked.
            acts: What was said.
            ends: How each of `programs` ended, in their order.

        Returns:
            Where the episode stands now.

        """
        raise NotImplementedError

    def step_all(self, turns: Sequence[Said]) -> list[Situation]:
        """Run the programs of all episodes at once; see `Environment.step_all`."""
        asked = [self.programs(turn.state, turn.acts) for turn in turns]
        ends = iter(run_fairly([program for programs in asked for program in programs]))
        situations = []
        for turn, programs in zip(turns, asked, strict=True):
            own = [next(ends) for _ in programs]
            if None in own:
                situations.append(Situation(turn.state, failed="no room for a sandbox"))
            else:
                ended = [end for end in own if end is not None]
                situations.append(self.answered(turn.state, turn.acts, ended))
        return situations


def run_fairly(programs: Sequence[Program]) -> list[ProgramEnd | None]:
    """Run programs, the lost ones twice.

    Args:
        programs: What to run, a few at a time.

    Returns:
        How each ended, in their order; None for those that the machine had no room for.

    """
    ends: list[ProgramEnd | None] = list(run_programs(programs))
    for place in _lost(ends):
        ends[place] = run_programs([programs[place]])[0]
    for place in _lost(ends):
        if run_programs([_harmless(programs[place])])[0].how == "lost":
            ends[place] = None
    return ends


def _lost(ends: Sequence[ProgramEnd | None]) -> list[int]:
    return [place for place, end in enumerate(ends) if end is not None and end.how == "lost"]


def _harmless(lost: Program) -> Program:
    """A program that takes most of the memory that the lost one may take, and ends."""
    # The interpreter needs some itself.
    return Program.of("python", f"b'x' * {lost.limits.memory_bytes // 2}", limits=lost.limits)
