"""A question about failures, whose answer is a new instruction: whoever plays the author says it.

An author is a player like those of other roles: the policy itself, another checkpoint, a model
behind an endpoint, or the script, which joins halves of two instructions and reads no failure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal

from posttrain.learning.episodes.environments.base import (
    Act,
    Ask,
    Environment,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.learning.rl.instructors.base import InstructedAttempts

if TYPE_CHECKING:
    from posttrain.learning.episodes.asked import Cue, Speaker

AUTHOR = "author"
"""The role that writes instructions."""
ANSWERED_BEHIND = "Instruction:"
"""Behind the last of these stands the new instruction; an answer without one is it as a whole."""
_LONGEST_SHOWN = 400
"""Characters that are shown of what was asked and said in a failure."""
_SENTENCES = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True)
class InstructionFailure:
    """An attempt that was not solved."""

    instruction: str
    problem: str
    text: str
    reward: float


def worst_failure(attempts: InstructedAttempts) -> list[InstructionFailure]:
    """The attempt of a group that earned least, of those that did not solve it; none if all did."""
    each = zip(attempts.texts, attempts.rewards, attempts.solved, strict=True)
    failed = [
        InstructionFailure(attempts.instruction, attempts.problem, text, reward)
        for text, reward, solved in each
        if reward is not None and not solved
    ]
    return [min(failed, key=lambda failure: failure.reward)] if failed else []


@dataclass(frozen=True)
class Occasion:
    """What one new instruction is to be written from."""

    parent: str
    mate: str
    """Another one that did well; the parent itself where it is alone."""
    failures: Sequence[InstructionFailure]

    def question(self) -> str:
        """Spell it as the author reads it."""
        shown = [
            f"Task: {each.problem[:_LONGEST_SHOWN]}\nSaid: {each.text[:_LONGEST_SHOWN]}\n"
            f"Earned: {each.reward:g}"
            for each in self.failures
        ]
        return "\n\n".join(
            [
                f"Somebody works by this instruction:\n{self.parent}",
                *shown,
                "Think about what went wrong and which instruction would have helped, for tasks of"
                f" this kind in general. End with a line that is `{ANSWERED_BEHIND}` and the better"
                " instruction.",
            ]
        )


def written_in(answer: str) -> str:
    """Return the instruction in what an author said.

    >>> written_in("It guessed. Instruction: Count first. "), written_in("Count first.")
    ('Count first.', 'Count first.')

    """
    return answer.rpartition(ANSWERED_BEHIND)[2].strip()


def written_by(
    speaker: "Speaker", occasions: Sequence[Occasion], *, step: int, seed: int
) -> list[str | None]:
    """Have new instructions written.

    Args:
        speaker: Plays the author.
        occasions: One for each.
        step: Of the run.
        seed: What is drawn depends on it, and on the place among the occasions.

    Returns:
        One text each; None where the author had no room to speak.

    """
    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.asked import Cue
    from posttrain.learning.rollouts.engines.base import Prompt

    def cue(place: int, occasion: Occasion) -> "Cue":
        told = (Told("user", occasion.question()),)
        name = f"reflection@{step}.{place}"
        return Cue(
            episode=name,
            index=0,
            turn=0,
            problem=Problem("reflection", occasion.question(), "", 0, "played"),
            prompt=Prompt(name, ()),
            state={"parent": occasion.parent, "mate": occasion.mate},
            ask=Ask(AUTHOR, told),
            before=(),
            heard=told,
            cut=False,
        )

    asked = [cue(place, occasion) for place, occasion in enumerate(occasions)]
    replies = speaker.reply(asked, Reflection(), seed=seed)
    return [written_in(each.act.text) if each.act else None for each in replies]


class Reflection(Environment):
    """What the author is asked in; its script reads two instructions and no failure."""

    kind: Literal["reflection"] = "reflection"

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """It is over once the author has spoken; see `Environment.step`."""
        return Situation(state)

    def unbound(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Join the first sentences of one and the last of the other; see `Environment.unbound`."""
        return crossed(state["parent"], state["mate"], draw)


def crossed(parent: str, mate: str, draw: Random) -> str:
    """Cross two texts between sentences; of one text, leave out a sentence where there are several.

    >>> crossed("Be brief. Be kind.", "Be brief. Be kind.", Random(0))
    'Be brief.'

    Args:
        parent: Gives the beginning.
        mate: Gives the end.
        draw: Chooses where each is cut.

    Returns:
        A text of sentences of the two, in their order, none of them twice.

    """
    first, second = _SENTENCES.split(parent), _SENTENCES.split(mate)
    if parent == mate:
        left = draw.randrange(len(first)) if len(first) > 1 else None
        return " ".join(each for place, each in enumerate(first) if place != left)
    head = first[: draw.randint(1, len(first))]
    tail = second[draw.randrange(len(second)) :]
    return " ".join(dict.fromkeys([*head, *tail]))
