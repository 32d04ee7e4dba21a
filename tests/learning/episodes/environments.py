"""Environments for tests: one that reports on what was said, and one that breaks."""

from typing import Literal

from posttrain.learning.episodes.environments.base import POLICY, Ask, Environment, Situation, Told


class Counting(Environment):
    """Say how long the last answer was, and ask again, `rounds` times; the seed is in the state."""

    kind: Literal["counting"] = "counting"
    rounds: int = 2

    def start(self, problem, seed):
        return Situation({"left": self.rounds, "seeds": [seed]}, (Ask(POLICY),))

    def step(self, state, acts, seed):
        (act,) = acts
        state = {"left": state["left"] - 1, "seeds": [*state["seeds"], seed]}
        if state["left"] < 0:
            return Situation(state, earned={POLICY: {"length": float(len(act.text))}})
        told = Told("user", f"{len(act.text)} = 5 more")
        return Situation(state, (Ask(POLICY, (told,)),), key=f"{len(act.text)}")


class Broken(Counting):
    """Break at the second turn."""

    kind: Literal["broken"] = "broken"

    def step(self, state, acts, seed):
        if state["left"] < self.rounds:
            return Situation(state, failed="the page is gone")
        return super().step(state, acts, seed)


class Flaky(Counting):
    """Break in every fourth episode or so, by the seed of the turn."""

    kind: Literal["flaky"] = "flaky"

    def step(self, state, acts, seed):
        if seed % 4 == 0:
            return Situation(state, failed="the page is gone")
        return super().step(state, acts, seed)


class Impolite(Counting):
    """Ask again without a word."""

    kind: Literal["impolite"] = "impolite"

    def step(self, state, acts, seed):
        return Situation(state, (Ask(POLICY),))
