"""An environment answers what the policy says, until an episode is over. In the recipe:

rl_play:
  task: tasks.rl
  inputs: {policy: sft.policy, problems: curate.problems}
  steps: 1
  problems_per_step: 4
  max_tokens: 6
  producer: {kind: episodes, environment: {kind: second_try, words: "Again:"}}
  reward:
    components: {correct: verifier, near: {kind: target_length, target: 9}}
    bonus_may_outweigh: true
"""

from typing import Literal

from posttrain.learning.episodes.environments.base import POLICY, Ask, Environment, Situation, Told


class SecondTry(Environment):
    """Let the policy answer once more, where its first answer says nothing after `####`."""

    kind: Literal["second_try"] = "second_try"
    words: str
    """What it is told."""

    def start(self, problem, seed):
        return Situation({"tries": 1}, (Ask(POLICY),))

    def step(self, state, acts, seed):
        if "#### " in acts[0].text or state["tries"] > 1:
            return Situation(state)
        asked = Ask(POLICY, (Told("user", self.words),))
        return Situation({"tries": state["tries"] + 1}, (asked,))


PARTS = {"environment": {"second_try": SecondTry}}
