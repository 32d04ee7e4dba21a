"""Questions with yes or no for an answer, until it is known what was thought of."""

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.learning.episodes.worlds.base import Posed, World, WorldFacts

_ATTRIBUTES = ("alive", "animal", "flies", "swims", "eaten", "big", "metal", "round", "indoors")
# What is true of each thing: no two are alike.
_THINGS: Mapping[str, str] = {
    "ant": "alive animal",
    "apple": "alive eaten round",
    "ball": "round",
    "bee": "alive animal flies",
    "boat": "swims big",
    "bread": "eaten indoors",
    "cat": "alive animal indoors",
    "chair": "indoors",
    "cheese": "eaten round indoors",
    "coin": "metal round",
    "cow": "alive animal eaten big",
    "cup": "round indoors",
    "duck": "alive animal flies swims eaten",
    "eagle": "alive animal flies big",
    "fish": "alive animal swims eaten",
    "fridge": "big metal indoors",
    "frog": "alive animal swims",
    "goose": "alive animal flies swims eaten big",
    "hen": "alive animal eaten",
    "horse": "alive animal big",
    "house": "big",
    "kite": "flies",
    "moon": "big round",
    "nail": "metal",
    "olive": "alive eaten",
    "piano": "big indoors",
    "plane": "flies big metal",
    "ring": "metal round indoors",
    "ship": "swims big metal",
    "spoon": "metal indoors",
    "train": "big metal",
    "tree": "alive big",
    "whale": "alive animal swims big",
}
_SURE = 0.9


class TwentyQuestions(World):
    """Ask about a hidden thing until it is known; a scripted user answers, now and then wrongly.

    A turn is a question, one of the words that the prompt has behind `ask`, or a guess, the name of
    a thing. The guess that is right ends the episode and earns 1.

    Source: own world.
    """

    SIZES: ClassVar[tuple[str, ...]] = ("things", "turns", "noise")

    kind: Literal["twenty_questions"] = "twenty_questions"
    things: int = Field(default=8, ge=2, le=len(_THINGS))
    """The hidden thing is one of so many, of a table of 33; which ones each problem draws."""
    turns: int = Field(default=5, ge=1)
    """Questions and guesses that an episode has, together."""
    noise: float = Field(default=0.0, ge=0.0, lt=0.5)
    """Probability that the user answers a question wrongly; a guess is always judged rightly."""

    def pose(self, draw: Random) -> Posed:
        """Choose things, and hide one; see `World.pose`."""
        things = sorted(draw.sample([*_THINGS], self.things))
        facts = {
            "hidden": draw.choice(things),
            "things": things,
            "left": self.turns,
            "noise": self.noise,
            "tape": draw.getrandbits(32),
        }
        said = f"{' '.join(things)}; ask {' '.join(_ATTRIBUTES)}; {self.turns} turns"
        return Posed(said, facts)

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - the tape decides
        """Ask for a question; see `World.begin`."""
        return _asked({**facts, "answers": [], "ruled_out": []}, ())

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Answer the question, or judge the guess; see `Environment.step`."""
        said = acts[0].text.strip()
        after = {**state, "left": state["left"] - 1}
        if said == state["hidden"]:
            return Situation(after, earned={POLICY: 1.0})
        if said in state["things"]:
            after["ruled_out"] = [*state["ruled_out"], said]
            return _asked(after, (Told("user", "no"),))
        if said not in _ATTRIBUTES:
            return _asked(after, (Told("user", "what?"),), facts={"tool_errors": 1.0})
        # The same question for the n-th time has one answer in all episodes of a problem.
        times = sum(asked == said for asked, _ in state["answers"])
        wrong = Random(f"{state['tape']}/{said}/{times}").random() < state["noise"]
        answer = _true_of(state["hidden"], said) != wrong
        after["answers"] = [*state["answers"], [said, answer]]
        return _asked(after, (Told("user", "yes" if answer else "no"),))

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Ask what halves the things that it may be, or guess; see `World.best_move`."""
        weights = {thing: _likelihood(state, thing) for thing in state["things"]}
        total = math.fsum(weights.values())
        guess = max(weights, key=lambda thing: weights[thing])

        def unevenness(attribute: str) -> float:
            yes = math.fsum(w for thing, w in weights.items() if _true_of(thing, attribute))
            return abs(yes / total - 0.5)

        best = min(_ATTRIBUTES, key=unevenness)
        known = weights[guess] >= _SURE * total or unevenness(best) > 0.5 - 1e-9
        return guess if known or state["left"] == 1 else best

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Ask or guess anything; see `World.random_move`."""
        things: Sequence[str] = state["things"]
        return draw.choice([*_ATTRIBUTES, *things])


def _likelihood(state: EpisodeState, thing: str) -> float:
    """How likely the answers are, were it this thing."""
    if thing in state["ruled_out"]:
        return 0.0
    noise: float = state["noise"]
    return math.prod(
        1.0 - noise if _true_of(thing, attribute) == answer else noise
        for attribute, answer in state["answers"]
    )


def _true_of(thing: str, attribute: str) -> bool:
    return attribute in _THINGS[thing].split()


def _asked(
    state: EpisodeState, told: tuple[Told, ...], *, facts: Mapping[str, float] | None = None
) -> Situation:
    """Ask for a question or a guess, if a turn is left."""
    asks = (Ask(POLICY, told),) if state["left"] else ()
    answers = " ".join(f"{attribute}={answer:d}" for attribute, answer in sorted(state["answers"]))
    key = f"{answers} {' '.join(sorted(state['ruled_out']))}/{state['left']}"
    return Situation(state, asks, key=key, facts=facts or {})
