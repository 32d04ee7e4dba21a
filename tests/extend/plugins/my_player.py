"""A player speaks in a role of an environment beside the policy. In the recipe:

rl_company:
  task: tasks.rl
  inputs: {policy: sft.policy, problems: curate.problems}
  problems_per_step: 4
  max_tokens: 6
  producer: {kind: episodes, environment: {kind: second_try, judged: true}, roles: {judge: {kind: echo, word: "no"}}}
  reward: {components: {correct: verifier, near: {kind: target_length, target: 9}}, bonus_may_outweigh: true}
"""  # noqa: E501

from typing import Literal

from posttrain.learning.episodes.asked import Reply, Speaker
from posttrain.learning.episodes.environments.base import Act
from posttrain.learning.episodes.players.base import Player, Seat


class Echo(Player):
    """Say one word, and what was heard last."""

    kind: Literal["echo"] = "echo"
    word: str
    """The word."""

    def sit(self, table):
        seat = EchoSeat()
        seat.word = self.word
        return seat


class EchoSeat(Seat, Speaker):
    def speaker(self, params):
        return self

    def reply(self, asked, environment, *, seed):
        return [Reply(Act(a.ask.role, f"{self.word} {a.heard[-1].text}")) for a in asked]


PARTS = {"player": {"echo": Echo}}
