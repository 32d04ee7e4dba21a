"""An environment answers what the policy says, until an episode is over. In the recipe:

rl_play:
  task: tasks.rl
  inputs: {policy: sft.policy, problems: curate.problems}
  steps: 1
  problems_per_step: 4
  max_tokens: 6
  producer: {kind: episodes, environment: {kind: second_try, words: "Again:"}}
  reward: {components: {correct: verifier, near: {kind: target_length, target: 9}}, bonus_may_outweigh: true}
"""  # noqa: E501

from typing import ClassVar, Literal

from posttrain.learning.episodes.environments.base import POLICY, Ask, Environment, Situation, Told


class SecondTry(Environment):
    """Let the policy answer once more, where its first answer says nothing after `####`."""

    ROLES: ClassVar = frozenset({"judge"})
    kind: Literal["second_try"] = "second_try"
    words: str = "Again:"
    judged: bool = False
    """Whether a judge says what it is told, and not the words."""

    def start(self, problem, seed):
        return Situation({"tries": 1}, (Ask(POLICY),))

    def step(self, state, acts, seed):
        (act,) = acts
        if act.role == "judge":
            return Situation(state, (Ask(POLICY, (Told("user", act.text),)),))
        if "#### " in act.text or state["tries"] > 1:
            return Situation(state)
        role, told = ("judge", act.text) if self.judged else (POLICY, self.words)
        return Situation({"tries": state["tries"] + 1}, (Ask(role, (Told("user", told),)),))


PARTS = {"environment": {"second_try": SecondTry}}
