"""An action mask says which tokens may be drawn at all. In the recipe:

rl_masked:
  task: tasks.rl
  inputs: {policy: sft.policy, problems: curate.problems}
  draw: {mask: {kind: without, text: "7"}}
  steps: 1
  problems_per_step: 3
  group_size: 4
  max_tokens: 6
"""

from typing import Literal

from posttrain.learning.rl.action_masks.base import ActionMask, TokenMask


class Without(ActionMask):
    """No token that has some text in it."""

    kind: Literal["without"] = "without"
    text: str

    def start(self, policy):
        tokens = [policy.tokenizer.decode([token]) for token in range(len(policy.tokenizer))]
        return Fixed([self.text not in token for token in tokens])


class Fixed(TokenMask):
    def __init__(self, allowed):
        self.allowed = allowed

    def at(self, input_ids_BT, wanted_BT, temperature):
        allowed_V = input_ids_BT.new_tensor(self.allowed).bool()
        return lambda begin, end: allowed_V.repeat(end - begin, 1)


PARTS = {"action_mask": {"without": Without}}
