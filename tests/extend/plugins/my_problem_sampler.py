"""A problem sampler chooses what to practice on, and hears what became of it. In the recipe:

rl:
  draw: {sampler: {kind: least_drawn}}
"""

from typing import Literal

from posttrain.learning.curriculum.base import ProblemPool, ProblemSampler, ProblemStream


class LeastDrawn(ProblemSampler):
    """Draw the problems that were drawn least often."""

    kind: Literal["least_drawn"] = "least_drawn"

    def start(self, pool: ProblemPool) -> "LeastDrawnStream":
        return LeastDrawnStream(len(pool.problems))


class LeastDrawnStream(ProblemStream):
    def __init__(self, num_problems: int) -> None:
        self.counts = [0] * num_problems

    def draw(self, count, *, seed, step, without=()):
        left = [p for p in range(len(self.counts)) if p not in without]
        return sorted(left, key=lambda p: (self.counts[p], p))[:count]

    def observe(self, results):
        for result in results:
            self.counts[result.problem] += 1

    def state_dict(self):
        return {"counts": list(self.counts)}

    def load_state_dict(self, state):
        self.counts = list(state["counts"])


PARTS = {"problem_sampler": {"least_drawn": LeastDrawn}}
