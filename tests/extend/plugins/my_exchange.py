"""An exchange says what several policies that are trained together give each other. In the recipe:

coevolve:
  task: tasks.coevolve
  inputs: {policy: sft.policy, problems: curate.problems}
  steps: 2
  problems_per_step: 4
  max_tokens: 6
  exchange: {kind: next_one, policies: 3}
  reward: {components: {correct: verifier, near: {kind: target_length, target: 9}}, bonus_may_outweigh: true}
"""  # noqa: E501

from typing import ClassVar, Literal

from posttrain.learning.rl.exchanges.base import Exchange


class NextOne(Exchange):
    """Let every policy learn from what the one before it drew, and from nothing else."""

    METRICS: ClassVar = {"passed_on": "groups that were passed on"}

    kind: Literal["next_one"] = "next_one"

    def generations(self, members, at):
        own = [member.only(member.generation(at.step, at.config), ()) for member in members]
        shared = [m.shared(made.groups) for m, made in zip(members, own, strict=True)]
        at.measured["passed_on"] = sum(map(len, shared))
        return [
            member.learning(made, member.as_own(member.read(shared[place - 1], at.step)))
            for place, (member, made) in enumerate(zip(members, own, strict=True))
        ]


PARTS = {"exchange": {"next_one": NextOne}}
