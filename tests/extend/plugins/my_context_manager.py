"""A context manager says what a role goes on from when it has read too much. In the recipe:

rl_forgetful:
  task: tasks.rl
  inputs: {policy: sft.policy, problems: curate.problems}
  steps: 1
  problems_per_step: 4
  max_tokens: 6
  producer:
    kind: episodes
    environment: {kind: second_try, words: "Again:"}
    context: {kind: forget, at_tokens: 12}
  reward: {components: {correct: verifier, near: {kind: target_length, target: 9}}, bonus_may_outweigh: true}
"""  # noqa: E501

from typing import Literal

from posttrain.learning.episodes.contexts.base import ContextManager
from posttrain.learning.episodes.episode import Segment


class Forget(ContextManager):
    """Go on from the prompt alone."""

    kind: Literal["forget"] = "forget"
    at_tokens: int
    """Tokens above which all but the prompt is forgotten."""

    def is_full(self, segment):
        return len(segment.token_ids) > self.at_tokens and len(segment.spans) > 1

    def make_room(self, crowded, role):
        return [(*c.segments[:-1], c.segments[-1].until_drawn(), self.fresh(c)) for c in crowded]

    def fresh(self, crowded):
        return Segment(crowded.asked.ask.role).read(crowded.asked.prompt.token_ids)


PARTS = {"context_manager": {"forget": Forget}}
