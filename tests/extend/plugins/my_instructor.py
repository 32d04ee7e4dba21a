"""An instructor says what stands before a problem, and hears what came of it. In the recipe:

rl_told:
  task: tasks.rl
  inputs: {policy: sft.policy, problems: curate.problems}
  steps: 2
  problems_per_step: 4
  max_tokens: 6
  draw: {instructions: {kind: urge, text: "Go."}}
  reward: {components: {correct: verifier, near: {kind: target_length, target: 9}}, bonus_may_outweigh: true}
"""  # noqa: E501

from typing import Literal

from posttrain.learning.rl.instructors.base import InstructionStream, Instructor, InstructorBench


class Urge(Instructor):
    """Say it once, and once more for each step in which something failed."""

    kind: Literal["urge"] = "urge"
    text: str

    def start(self, bench: InstructorBench) -> "UrgeStream":
        return UrgeStream(self.text)


class UrgeStream(InstructionStream):
    def __init__(self, text: str) -> None:
        self.text, self.times = text, 1

    def choose(self, problems, *, step):
        return [" ".join([self.text] * self.times) for _ in problems]

    def observe(self, attempts):
        self.times += any(not all(each.solved) for each in attempts)


PARTS = {"instructor": {"urge": Urge}}
