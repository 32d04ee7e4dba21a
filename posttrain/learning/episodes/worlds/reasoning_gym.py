"""Problems of any generator of reasoning-gym, of which a wrong answer may be given again."""

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from posttrain.data.gym_generators import SANDBOXED, STATES_NO_ANSWER
from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.learning.episodes.worlds.base import Posed, World, WorldFacts
from posttrain.stage.errors import UserError, first_line, nearest

_OTHERS = 4
"""Answers to other problems that are kept, for a player who guesses."""
_MOST_LETTERS = 1000
"""A longer answer is wrong, and no scorer reads it."""
# What a scorer of the library raises of a text that it cannot read.
_UNREAD = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)


class GymTries(World):
    """Answer a problem of reasoning-gym, and answer again where that was wrong.

    A turn is an answer and nothing else. The library's scorer decides; of a wrong answer is told
    that it is wrong and how many tries are left, and with `told: score` what it would be given.
    """

    SOURCE: ClassVar[str] = "reasoning-gym, arXiv:2505.24760: problems and scorers"
    SIZES: ClassVar[tuple[str, ...]] = ("tries",)

    kind: Literal["gym_tries"] = "gym_tries"
    generator: str = "chain_sum"
    """Generator, as the source `reasoning_gym` names it."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Its options."""
    tries: int = Field(default=3, ge=1)
    """Answers that an episode has."""
    told: Literal["wrong", "score"] = "wrong"
    """What is told of a wrong answer, beside the tries that are left."""

    @field_validator("generator")
    @classmethod
    def _runs_no_code(cls, generator: str) -> str:
        if generator in SANDBOXED:
            raise ValueError(
                f"the scorer of '{generator}' runs the answer as code; take another generator"
            )
        if generator in STATES_NO_ANSWER:
            raise ValueError(
                f"'{generator}' states no answer that a script could give; take another generator"
            )
        return generator

    def pose(self, draw: Random) -> Posed:
        """Draw a problem of the generator; see `World.pose`."""
        drawn = _drawn(self.generator, draw.getrandbits(31), self.options)
        entry, *others = (json.loads(json.dumps(each, default=str)) for each in drawn)
        facts = {"entry": entry, "others": [str(other["answer"]) for other in others]}
        return Posed(entry["question"].strip(), {**facts, "left": self.tries, "told": self.told})

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - nothing is drawn
        """Ask for an answer; see `World.begin`."""
        return _asked(facts, ())

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Score the answer; see `Environment.step`."""
        score = _scored(acts[0].text.strip(), state["entry"])
        after = {**state, "left": state["left"] - 1}
        if score >= 1.0:
            return Situation(after, earned={POLICY: 1.0})
        said = f"{score:.2f}" if state["told"] == "score" else "wrong"
        return _asked(after, (Told("user", f"{said}, {after['left']} left"),))

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Give the generator's own answer; see `World.best_move`."""
        return str(state["entry"]["answer"])

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Give the answer to another problem; see `World.random_move`."""
        return str(draw.choice(state["others"]))


def _drawn(generator: str, seed: int, options: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    if generator not in DATASETS:
        raise UserError(
            f"reasoning-gym has no generator '{generator}'{nearest(generator, DATASETS)}"
        )
    try:
        drawn = reasoning_gym.create_dataset(generator, size=1 + _OTHERS, seed=seed, **options)
    except (TypeError, AssertionError, ValueError) as error:
        raise UserError(f"options of '{generator}': {first_line(error)}; mend them") from None
    return [drawn[at] for at in range(1 + _OTHERS)]


def _scored(answer: str, entry: Mapping[str, Any]) -> float:
    from posttrain.data.schemas import Problem
    from posttrain.learning.rewards.verifiers.reasoning_gym import GymVerifier

    if not answer or len(answer) > _MOST_LETTERS:
        return 0.0
    metadata = json.dumps(entry["metadata"])
    problem = Problem(
        "", entry["question"], str(entry["answer"]), 1, "reasoning_gym", metadata=metadata
    )
    try:
        score = GymVerifier().compare(answer, problem)
    except _UNREAD:
        return 0.0
    return score.value or 0.0


def _asked(state: EpisodeState, told: tuple[Told, ...]) -> Situation:
    """Ask for an answer, if there is a try left."""
    if not state["left"]:
        return Situation(state)
    return Situation(
        state, (Ask(POLICY, told),), key=f"{state['entry']['question']}/{state['left']}"
    )
