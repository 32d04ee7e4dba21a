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
            return Situation(state)
        told = Told("user", f"{len(act.text)} = 5 more")
        return Situation(state, (Ask(POLICY, (told,)),))


class Together(Counting):
    """Note how many episodes are answered at once."""

    kind: Literal["together"] = "together"

    def step_all(self, turns):
        AT_ONCE.append(len(turns))
        return super().step_all(turns)


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


class Absent(Counting):
    """Break before anybody speaks, by the parity of the problem's first number; or always."""

    kind: Literal["absent"] = "absent"
    always: bool = False

    def start(self, problem, seed):
        if self.always or problem.prompt.split()[1] in "02468" or problem.prompt[0] in "02468":
            return Situation({}, failed="no sandbox came up")
        return super().start(problem, seed)


class Fickle(Counting):
    """Begin each episode otherwise than the others of its group, as a server may that has no seed.

    Every third begins as the first.
    """

    EXACT = False

    kind: Literal["fickle"] = "fickle"

    def start(self, problem, seed):
        FIRST.append(problem.prompt)
        number = FIRST.count(problem.prompt) % 3
        told = Told("user", f"{problem.prompt} or {number} + {number} =")
        return Situation({"left": self.rounds, "seeds": [seed]}, (Ask(POLICY, (told,)),))


class Stranger(Counting):
    """Ask somebody who is not there."""

    ROLES = frozenset({"judge"})

    kind: Literal["stranger"] = "stranger"

    def step(self, state, acts, seed):
        return Situation(state, (Ask("judge"),))


class Opening(Counting):
    """Open something at every start, which is closed by its number."""

    kind: Literal["opening"] = "opening"

    def start(self, problem, seed):
        OPENED.append(len(OPENED))
        if len(OPENED) == self.rounds:
            raise RuntimeError("the last box")
        return Situation({"left": 0, "seeds": [], "box": OPENED[-1]}, (Ask(POLICY),))

    def step(self, state, acts, seed):
        return Situation(state)

    def close(self, state):
        CLOSED.append(state["box"])
        if state["box"] == 1:
            raise OSError("box 1 is stuck")


OPENED, CLOSED, AT_ONCE, FIRST = [], [], [], []


class Impolite(Counting):
    """Ask again without a word."""

    kind: Literal["impolite"] = "impolite"

    def step(self, state, acts, seed):
        return Situation(state, (Ask(POLICY),))
